"""A TARGET leads to one Server, or to an error that says what was looked for."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Server
from antiphon.cli.serve import NotFound, TargetFailed, load_server, parse_server
from antiphon.loading import ServerName
from antiphon.tracebacks import own_traceback

ONE = "from antiphon import Server\napp = Server('one')\n"
TWO = "from antiphon import Server\nuser = Server('user')\nadmin = Server('admin')\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("one", "two", "shop"):  # which another test in this process may have left behind
        monkeypatch.delitem(sys.modules, name, raising=False)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write(folder, **files):
    for name, text in files.items():
        path = folder.joinpath(*name.split("__in__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("target", ["one.py", "one.py:app", "one", "one:app", "./one.py"])
def test_the_only_server_is_found_by_file_and_by_module(folder, target):
    write(folder, one=ONE)
    assert load_server(parse_server(target)).info.name == "one"


@pytest.mark.parametrize("target", ["two.py:admin", "two:admin", "two:Holder.admin"])
def test_a_named_server_is_found_among_several(folder, target):
    write(folder, two=f"{TWO}\nclass Holder:\n    admin = admin\n")
    assert load_server(parse_server(target)).info.name == "admin"


def test_two_names_of_one_server_are_one_server(folder):
    write(folder, one=f"{ONE}\nsame = app\n")
    assert load_server(parse_server("one.py")).info.name == "one"


def test_a_server_imported_from_elsewhere_counts(folder):
    write(folder, one=ONE, main_file="from one import app\n")
    assert load_server(parse_server("main_file.py")).info.name == "one"


def test_a_file_elsewhere_imports_its_neighbours_and_from_the_current_directory(folder):
    write(folder, beside_cwd="NAME = 'x'\n", far__in__beside_file="from antiphon import Server\n")
    write(folder, far__in__one="from beside_file import Server\nimport beside_cwd\napp = Server(beside_cwd.NAME)\n")
    assert load_server(parse_server("far/one.py")).info.name == "x"


def test_a_file_in_a_package_may_import_relatively(folder):
    write(folder, shop__in__api__in____init__="", shop__in____init__="", shop__in__parts=ONE)
    write(folder, shop__in__api__in__main="from ..parts import app\n")
    assert load_server(parse_server("shop/api/main.py")).info.name == "one"
    assert "shop.api.main" in sys.modules


def test_a_package_is_found_by_its_init_file_and_by_its_name(folder):
    write(folder, shop__in____init__=ONE)
    assert load_server(parse_server("shop/__init__.py")) is load_server(parse_server("shop"))


def test_a_file_knows_its_name_and_its_place_and_is_no_main_program(folder):
    write(folder, one=f"{ONE}\nplace = __file__\nname = __name__\nassert __name__ != '__main__'\n")
    load_server(parse_server("one.py"))
    assert (sys.modules["one"].name, sys.modules["one"].place) == ("one", str(folder / "one.py"))


def test_a_file_named_like_a_loaded_module_does_not_replace_it(folder):
    import json

    write(folder, json=ONE)
    assert load_server(parse_server("json.py")).info.name == "one"
    assert sys.modules["json"] is json


def test_a_file_is_imported_once(folder):
    write(folder, one=ONE)
    assert (
        load_server(parse_server("one.py"))
        is load_server(parse_server("one.py:app"))
        is load_server(parse_server("one"))
    )


def test_a_lazy_object_among_the_names_is_left_alone(folder):
    proxy = (
        "class Lazy:\n    @property\n    def __class__(self):\n        raise RuntimeError('too early')\nlazy = Lazy()\n"
    )
    write(folder, one=ONE + proxy)
    assert load_server(parse_server("one.py")).info.name == "one"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("two.py", "two.py has several Servers (admin, user): choose one, as in two.py:admin"),
        ("none.py", "none.py has no Server: looked for an antiphon.Server among its top-level names"),
        ("two:owner", "two has no 'owner'; its Servers: admin, user"),
        ("two:admin.inner", "two has no 'admin.inner'; its Servers: admin, user"),
        ("none.py:number", "'number' in none.py is not an antiphon.Server: its type is int"),
        ("gone.py", "There is no file gone.py"),
        ("gone.py:app", "There is no file gone.py"),
        ("two.admin", "a Server 'admin' in the module 'two' is written two:admin"),
        ("gone_module", "There is no module 'gone_module' in "),
        ("gone_module.part:app", "There is no module 'gone_module' in "),
        ("./far", "./far is a folder: name the file in it that holds the Server"),
        ("not-a-module", "'not-a-module' is neither a file (notes.py) nor a module (package.module)"),
        ("", "'' is neither a file"),
    ],
)
def test_a_target_without_a_server_is_a_usage_error_that_says_why(folder, target, said):
    write(folder, two=TWO, none="number = 3\n", far__in__one=ONE)
    with pytest.raises(NotFound) as raised:
        load_server(parse_server(target))
    assert said in raised.value.format_message()
    assert raised.value.exit_code == 2


def test_a_missing_dependency_is_the_targets_own_failure(folder):
    write(folder, one="import gone_dependency\n")
    for target in ("one.py", "one"):
        with pytest.raises(TargetFailed, match="No module named 'gone_dependency'") as raised:
            load_server(parse_server(target))
        assert raised.value.exit_code == 1
        assert raised.value.message.count("  File ") == 1


def test_a_target_that_ends_the_process_is_told_about_the_main_block(folder):
    write(folder, one="import sys\nsys.exit(7)\n")
    with pytest.raises(Exception, match=r"one\.py ended the process while it was imported \(exit code 7\)"):
        load_server(parse_server("one.py"))


def test_a_file_that_failed_can_be_imported_again(folder):
    write(folder, one="1 / 0\n")
    with pytest.raises(TargetFailed):
        load_server(parse_server("one.py"))
    write(folder, one=ONE)
    assert load_server(parse_server("one.py")).info.name == "one"


def test_a_syntax_error_is_shown_with_its_line(folder):
    write(folder, one="x = = 2\n")
    with pytest.raises(TargetFailed) as raised:
        load_server(parse_server("one.py"))
    assert raised.value.message.startswith(f'  File "{folder / "one.py"}", line 1')
    assert raised.value.message.endswith("SyntaxError: invalid syntax\n")


def test_a_refused_tool_is_shown_at_the_line_that_registers_it(folder):
    write(folder, one=f"{ONE}\n@app.tool\ndef f(x: complex) -> str: ...\n")
    with pytest.raises(TargetFailed) as raised:
        load_server(parse_server("one.py"))
    shown = raised.value.message
    assert [line.split('"')[1] for line in shown.splitlines() if line.startswith("  File")] == [str(folder / "one.py")]
    assert shown.count("Traceback") == 1
    assert "complex" in shown.splitlines()[-1]


def test_a_traceback_keeps_the_authors_causes_and_groups():
    try:
        try:
            Server("x", page_size=0)
        except ValueError as fault:
            raise ExceptionGroup("several", [KeyError("first")]) from fault
    except ExceptionGroup as group:
        shown = own_traceback(group)
    assert "page_size must be at least 1" in shown
    assert "KeyError: 'first'" in shown
    assert "service.py" not in shown


@given(st.text(max_size=30))
def test_any_text_is_a_target_or_a_usage_error(text):
    try:
        target = parse_server(text)
    except NotFound:
        return
    assert isinstance(target, ServerName)
    assert Path(target.file).is_file() if target.file else target.module
