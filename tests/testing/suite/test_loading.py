"""Loading a suite: what it becomes, and every way in which it can be wrong."""

import os
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.testing.suite import Suite, SuiteBroken, find_suites, load, load_all, loads

HEAD = "server: {app: shop.py}\n"


def problems(text: str) -> list[str]:
    """What is wrong with a suite, each as line:column: message."""
    with pytest.raises(SuiteBroken) as caught:
        loads(dedent(text), "s.mcp.yaml")
    return [str(problem).removeprefix("s.mcp.yaml:") for problem in caught.value.problems]


def holding(text: str) -> str:
    return f"{HEAD}tests:\n" + "\n".join(f"  {line}" for line in dedent(text).strip().splitlines()) + "\n"


def test_a_suite_is_read_with_its_defaults():
    suite = loads(
        dedent("""
        name: The shop
        server: {command: [python, shop.py], env: {DEBUG: 1}, startup: 500ms, era: modern}
        defaults: {timeout: 2m, tags: [slow], inputResponses: {confirm: true}}
        tests:
          - name: deploys
            tool: deploy
            arguments: {env: prod}
            tags: asking
            inputResponses: {name: Ann}
            expect: {text: Deployed to prod}
          - name: reads
            resource: order://1
            timeout: 3
            isolated: true
    """),
        "shop/s.mcp.yaml",
    )
    assert isinstance(suite, Suite)
    assert (suite.name, suite.target.command, suite.target.env) == ("The shop", ("python", "shop.py"), {"DEBUG": "1"})
    assert (suite.target.startup, suite.target.era) == (0.5, "modern")
    assert suite.target.cwd == Path("shop").absolute()
    first, second = suite.cases
    assert (first.method, first.params) == ("tools/call", {"name": "deploy", "arguments": {"env": "prod"}})
    assert (first.timeout, first.tags) == (120.0, ("slow", "asking"))
    assert first.answers == {"confirm": True, "name": "Ann"}
    assert (str(first.place), str(first.expect[0].place)) == ("shop/s.mcp.yaml:6:5", "shop/s.mcp.yaml:11:14")
    assert (second.method, second.params) == ("resources/read", {"uri": "order://1"})
    assert (second.timeout, second.isolated) == (3.0, True)


def test_answers_may_be_a_list_of_ids_with_values():
    test = "- {name: a, tool: x, inputResponses: [{id: city, value: Oslo}, {id: days, value: [1, 2]}]}"
    (case,) = loads(holding(test)).cases
    assert case.answers == {"city": "Oslo", "days": [1, 2]}
    assert case.needed_answers == ("city", "days")
    assert problems(holding("- {name: a, tool: x, inputResponses: [{id: city, value: 1}, {id: city, value: 2}]}")) == [
        "3:68: 'city' is answered twice: give a list of values, one for each time"
    ]
    assert problems(holding("- {name: a, tool: x, inputResponses: [{id: city}]}")) == [
        "3:41: An answer needs 'value': The answer."
    ]


def test_folders_of_others_are_not_searched(tmp_path: Path):
    for folder in (".venv", "env", "node_modules", "a/node_modules/x", ".hidden", "a/.git", "a/b", "__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "s.mcp.yaml").touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / ".#s.mcp.yaml").symlink_to("nowhere")
    (tmp_path / "t.mcp.yml").touch()
    found = find_suites([tmp_path, tmp_path / ".hidden", tmp_path / "env" / "s.mcp.yaml"])
    names = [file.relative_to(tmp_path).as_posix() for file in found]
    assert names == ["a/b/s.mcp.yaml", "t.mcp.yml", ".hidden/s.mcp.yaml", "env/s.mcp.yaml"]


def test_a_suite_knows_which_variables_it_has_and_uses():
    text = "variables: {a: 1, b: '${a}'}\n" + holding("- {name: x, tool: '${d}', arguments: {e: '$${f}'}}")
    assert loads(text, c=1, d=2).names == {"a", "b", "d"}


def test_a_suite_is_called_after_its_file():
    assert loads(holding("- {name: a, tool: b}"), "x/shop.mcp.yaml").name == "shop"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("¦{name: a, tol: b}", "A test needs one of tool, prompt, resource or method, and got none of them"),
        ("{name: a, tool: b, ¦argumens: {}}", "Unknown key 'argumens' in a test; did you mean 'arguments'?"),
        ("{name: a, tool: b, ¦xyz: {}}", "Unknown key 'xyz' in a test; it has name, tool, prompt, resource,"),
        ("¦{tool: b}", "A test needs 'name': A sentence"),
        ("¦{name: a, tool: b, prompt: c}", "A test needs one of tool, prompt, resource or method, and got tool and"),
        ("{name: a, tool: ¦7}", "Expected a text, got a number (7); put it in quotes"),
        ("{name: a, tool: ¦[b]}", "Expected a text, got a list"),
        ("{name: a, tool: ¦''}", "This must not be empty"),
        ("{name: a, tool: b, arguments: ¦x}", "Expected a map, got the text 'x'"),
        ("{name: a, tool: b, timeout: ¦10 parsecs}", "A duration is written 500ms, 10s, 2m"),
        ("{name: a, tool: b, timeout: ¦0s}", "A duration must be more than nothing"),
        ("{name: a, tool: b, timeout: ¦[1]}", "Expected a duration such as 10s, got a list"),
        ("{name: a, tool: b, maxRounds: ¦0}", "Expected a whole number from 1, got 0"),
        ("{name: a, tool: b, maxRounds: ¦1.5}", "Expected a whole number from 1, got 1.5"),
        ("{name: a, tool: b, era: ¦moder}", "Expected modern or legacy, got 'moder'; did you mean 'modern'?"),
        ("{name: a, tool: b, era: ¦1}", "Expected modern or legacy, got a number (1)"),
        ("{name: a, tool: b, params: ¦{}}", "'params' makes sense only beside 'method'"),
        ("{name: a, resource: b, arguments: ¦{}}", "A resource takes no arguments: they are in its URI"),
        ("{name: a, method: b, arguments: ¦{}}", "A method takes 'params'; 'arguments' can be one of them"),
        ("{name: a, tool: b, ¦name: c}", "The key 'name' stands here twice: first on line 3"),
        ("{name: a, tool: b, expect: {text: {matches: ¦'('}}}", "'(' is not a regular expression: missing )"),
        ("{name: a, tool: b, expect: {text: {¦contain: x}}}", "Unknown key 'contain' in a matcher; did you mean"),
        ("{name: a, tool: b, expect: {text: ¦{}}}", "A matcher needs one of equals, contains"),
        ("{name: a, tool: b, expect: {text: ¦5}}", "Expected a text, got a number (5); put it in quotes"),
        ("{name: a, tool: b, expect: {text: no, ¦rouns: 1}}", "Unknown key 'rouns' in an expectation; did you me"),
        ("{name: a, tool: b, expect: {structured: {¦'$.a[': 1}}}", "The path '$.a[' makes no sense from '[' on"),
        ("{name: a, tool: b, expect: {structured: {$.a: {type: ¦text}}}}", "Expected string or number or"),
        (
            "{name: a, tool: b, expect: {structured: {$.a: {contains: 1, ¦mtches: x}}}}",
            "did you mean 'matches'? (a map",
        ),
        ("{name: a, tool: b, expect: {rounds: ¦two}}", "Expected a number or a map, got the text 'two'"),
        ("{name: a, tool: b, expect: {isError: ¦yes}}", "Expected true or false, got the text 'yes'"),
        ("{name: a, tool: b, expect: {asked: ¦confirm}}", "Expected a list, got the text 'confirm'"),
        ("{name: a, tool: b, expect: {error: {¦cod: 1}}}", "Unknown key 'cod' in an error; did you mean 'code'?"),
        ("{name: a, tool: b, expect: {schema: ¦{type: 7}}}", "This is not a JSON Schema: "),
        ("{name: a, tool: b, expect: {schema: ¦no.json}}", "The schema no.json cannot be read: No such file"),
        ("{name: a, tool: b, capture: {id: ¦id}}", "A path begins with $, as in $.id"),
        ("{name: a, tool: b, capture: {¦1d: $.id}}", "A variable's name has letters, digits"),
        ("{name: a, tool: b, capture: {id: ¦{}}}", "A captured value needs 'text': A regular expression"),
        ("{name: a, tool: b, inputResponder: ¦{}}", "An inputResponder needs 'url': Where questions are posted"),
        ("{name: a, tool: b, inputResponder: {url: ¦ftp://x}}", "A URL begins with http:// or https://"),
        ("{name: a, tool: b, arguments: {x: ¦!!binary aGk=}}", "A suite has no tag:yaml.org,2002:binary"),
        ("{name: a, tool: b, arguments: {? ¦[1] : 2}}", "A key must be a text"),
        ("¦[name]", "Expected a test (a map), got a list"),
        ("{name: a, tool: b, arguments: {x: ¦'${nme}'}}", "There is no variable 'nme' here; variables come from"),
        ("{name: a, tool: b, arguments: {x: ¦'${env:NO_SUCH_VAR}'}}", "The environment has no NO_SUCH_VAR; ${env"),
    ],
)
def test_what_is_wrong_with_a_test_is_told_with_its_place(text: str, expected: str):
    # The mark stands where the problem is.
    found = problems(holding(f"- {text.replace('¦', '')}"))
    place = f"3:{text.index('¦') + len('  - ') + 1}: "
    assert any(problem.startswith(place) and expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: The suite is empty"),
        ("[1, 2]", "1:1: Expected a suite (a map), got a list"),
        ("tests: [{name: a, tool: b}]", "1:1: A suite needs 'server': The server under test."),
        ("server: {app: x.py}", "1:1: A suite needs 'tests': The tests."),
        ("server: {app: x.py}\ntests: []", "2:8: Expected at least one item here"),
        ("server: {}\ntests: [{name: a, tool: b}]", "1:9: A server needs one of command, url, app or config"),
        (
            "server: {app: x, url: http://x}\ntests: [{name: a, tool: b}]",
            "1:9: A server needs one of command, url, app",
        ),
        ("server: {comand: [x]}\ntests: [{name: a, tool: b}]", "1:10: Unknown key 'comand' in a server; did you mean"),
        ("server: {command: []}\ntests: [{name: a, tool: b}]", "1:19: Expected at least one item here"),
        ('server: {command: "a \'b"}\ntests: [{name: a, tool: b}]', "1:19: The command cannot be read: No closing"),
        ("server: {app: x, headers: {a: b}}\ntests: [{name: a, tool: b}]", "1:27: 'headers' makes sense only beside"),
        ("server: {app: x, cwd: nowhere}\ntests: [{name: a, tool: b}]", "1:23: There is no folder"),
        ("server: {app: x}\ntets: []", "2:1: Unknown key 'tets' in a suite; did you mean 'tests'?"),
        ("server: {app: x}\ntests: [\n", "This is not YAML: "),
        ("server: {app: x}\n\ttests: 1", "2:1: This is not YAML: found character"),
        ("server: {app: x}\ntests: [{name: a, tool: is ${b}}]", "2:29: This is not YAML: "),
        ("server: {app: x}\ntests: [{name: a, tool: is ${b}}]", "a text with ${...} in it stands in quotes"),
        *(
            (f"variables: {{a: {value}}}\nserver: {{{where}}}\ntests: [{{name: a, tool: b}}]", f"{place}: {told}")
            for value, told in (("7", "Expected a text, and the variable is a number"), ("[x]", "Expected a text, and"))
            for where, place in (
                ("url: '${a}'", "2:15"),
                ("app: '${a}'", "2:15"),
                ("config: '${a}'", "2:18"),
                ("app: x, cwd: '${a}'", "2:23"),
                ("url: 'https://x', auth: {bearer: '${a}'}", "2:43"),
                ("url: 'https://x', auth: {client: c, secret: s, issuer: '${a}'}", "2:65"),
                ("url: 'https://x', auth: {client: c, secret: '${a}', issuer: 'https://i'}", "2:54"),
                ("app: x, auth: {identity: '${a}'}", "2:35"),
                ("app: x, auth: {identity: i, scopes: ['${a}']}", "2:46"),
            )
        ),
        ("variables: {a: 7}\nserver: {command: '${a}'}\ntests: [{name: a, tool: b}]", "2:19: Expected a text, and"),
        ("server: {app: x}\ntests: &a [*a]", "2:8: Expected a test (a map), got a list"),
        ("variables: {a: '${b}'}\nserver: {app: x}\ntests: [{name: a, tool: b}]", "1:16: The variable 'a' uses 'b'"),
        ("server: {app: x}\ntests: [{name: a, tool: b}, {name: a, tool: c}]", "2:29: Two tests are called 'a'"),
    ],
)
def test_what_is_wrong_with_a_suite_is_told_with_its_place(text: str, expected: str):
    found = problems(text)
    assert any(expected in problem for problem in found), found


def test_all_problems_of_a_file_are_told_at_once_and_in_order():
    found = problems("""\
        server: {comand: [x]}
        tests:
          - name: a
            tol: b
          - name: b
            tool: c
            expect:
              text: {matches: '['}
              structured: {$.id: '${nothing}'}
    """)
    assert [problem.partition(": ")[0] for problem in found] == ["1:9", "1:10", "3:5", "4:5", "8:23", "9:26"]


def test_a_text_that_is_nested_too_deep_is_refused_before_it_is_parsed():
    assert "it is nested more than 100 deep" in problems("[" * 100_000)[0]


def test_a_list_that_contains_itself_is_refused():
    assert "This contains itself, or too much" in problems(holding("- {name: a, tool: b, arguments: &x {a: *x}}"))[0]


def test_a_matcher_that_contains_itself_is_refused():
    found = problems(holding("- {name: a, tool: b, expect: {text: &x {not: *x}}}"))
    assert found == ["1:1: This contains itself, or too much"]


def test_aliases_that_multiply_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("antiphon.testing.suite.document.MOST", 10_000)
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 5)
    )
    text = "server: {app: x}\nvariables:\n" + "".join(f"  {line}\n" for line in laughs.splitlines())
    assert any("too much" in problem for problem in problems(text + "tests: [{name: a, tool: b}]"))


def test_a_number_in_a_variable_is_written_into_the_environment_and_headers():
    test = "tests: [{name: a, tool: b}]"
    assert loads(f"variables: {{p: 80}}\nserver: {{app: x, env: {{PORT: '${{p}}'}}}}\n{test}").target.env == {
        "PORT": "80"
    }
    suite = loads(f"variables: {{p: 80}}\nserver: {{url: 'http://x', headers: {{x-port: '${{p}}'}}}}\n{test}")
    assert suite.target.headers == {"x-port": "80"}


def test_matchers_whose_aliases_multiply_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("antiphon.testing.suite.document.MOST", 10_000)
    matchers = "".join(f", $.a{n}: &a{n} {{not: *a{n - 1}, length: *a{n - 1}}}" for n in range(1, 40))
    found = problems(holding(f"- {{name: a, tool: b, expect: {{structured: {{$.a0: &a0 {{min: 3}}{matchers}}}}}}}"))
    assert len(found) == 1
    assert "This contains itself, or too much" in found[0]


def test_an_alias_stands_for_what_it_names():
    suite = loads(holding("- {name: a, tool: b, arguments: &x {c: 1}}\n- {name: d, tool: e, arguments: *x}"))
    assert suite.cases[1].params == {"name": "e", "arguments": {"c": 1}}


def test_values_are_read_as_editors_read_them():
    values = "{a: no, b: 12:30, c: 0x10, d: 2026-01-31, e: ~, f: 1e3, g: True, h: 0o7, i: .5}"
    assert loads(holding(f"- {{name: a, tool: b, arguments: {values}}}")).cases[0].params["arguments"] == {
        "a": "no", "b": "12:30", "c": 16, "d": "2026-01-31", "e": None, "f": 1000.0, "g": True, "h": 7, "i": 0.5
    }  # fmt: skip


def test_a_byte_order_mark_is_no_problem(tmp_path: Path):
    file = tmp_path / "s.mcp.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + holding("- {name: a, tool: b}").encode())
    assert load(file).cases[0].name == "a"


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path):
    (tmp_path / "latin.mcp.yaml").write_bytes(b"name: \xe4\n")
    with pytest.raises(SuiteBroken, match="latin.mcp.yaml:1:1: The file is not UTF-8"):
        load(tmp_path / "latin.mcp.yaml")
    with pytest.raises(SuiteBroken, match="none.mcp.yaml:1:1: The file cannot be read: No such file"):
        load(tmp_path / "none.mcp.yaml")


def test_the_problems_of_several_files_are_told_together(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.mcp.yaml").write_text("server: {}\n")
    with pytest.raises(SuiteBroken) as caught:
        load_all([tmp_path / "a.mcp.yaml", tmp_path / "b.mcp.yaml"])
    assert {problem.place.file.name for problem in caught.value.problems} == {"a.mcp.yaml", "b.mcp.yaml"}


# --- variables ----------------------------------------------------------------------------------------------------


def test_a_test_knows_whose_values_it_uses():
    suite = loads(
        holding("""
        - {name: a, tool: x, capture: {id: $.id}}
        - {name: b, tool: x}
        - {name: c, tool: x, arguments: {id: '${id}'}, capture: {id: $.id}}
        - {name: d, resource: 'order://${id}'}
        """)
    )
    assert [case.needs for case in suite.cases] == [(), (), (0,), (2,)]
    assert [case.refers for case in suite.cases] == [False, False, True, True]


def test_a_value_can_be_used_only_after_it_was_captured():
    found = problems(
        holding("- {name: a, tool: x, arguments: {id: '${id}'}}\n- {name: b, tool: x, capture: {id: $.id}}")
    )
    assert found == ["3:40: There is no variable 'id' here; variables come from 'variables' and from 'capture' above"]


def test_variables_are_given_from_outside_as_well(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLACE", "prod")
    text = "variables: {place: '${env:PLACE}', port: 1}\nserver: {url: 'http://${place}:${port}/${env:NONE:-mcp}'}\n"
    text += "tests: [{name: a, tool: b, arguments: {c: '${more}'}}]"
    assert loads(text, port=8000, more=1).target.url == "http://prod:8000/mcp"
    assert loads(text, port=8000, more=1).variables["place"] == "prod"


def test_a_text_from_outside_is_the_number_or_the_flag_that_it_replaces():
    text = "variables: {n: 1, x: 0.5, on: true, word: a}\nserver: {app: x}\ntests: [{name: a, tool: b}]"
    assert loads(text, n="2", x="3", on="false", word="7").variables == {"n": 2, "x": 3, "on": False, "word": "7"}
    assert loads(text, n="many", x="true", on="1").variables == {"n": "many", "x": "true", "on": "1", "word": "a"}


# --- anything at all ----------------------------------------------------------------------------------------------

WORDS = ["server", "tests", "app", "name", "tool", "expect", "text", "${x}", "$.a", "matches", "(", "x", "contains"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(WORDS) | st.floats(allow_nan=False, width=16),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_whatever_a_file_holds_it_is_a_suite_or_told_to_be_none(value: object):
    import msgspec

    try:
        loads(msgspec.json.encode(value).decode())
    except SuiteBroken as broken:
        assert broken.problems
        assert all(problem.place.line >= 1 and problem.message for problem in broken.problems)


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_whatever_text_stands_in_a_file_it_is_told(text: str):
    try:
        loads(text)
    except SuiteBroken as broken:
        assert str(broken).startswith(f"suite.mcp.yaml:{broken.problems[0].place.line}:")


def test_the_environment_is_not_changed_by_loading():
    before = dict(os.environ)
    loads("server: {app: x, env: {SOMETHING_NEW: 1}}\ntests: [{name: a, tool: b}]")
    assert dict(os.environ) == before
