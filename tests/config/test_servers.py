"""The servers of configuration files: found by file or host, their variables filled in."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.config.servers import Input, find_server, servers_in, split
from antiphon.errors import ConfigUnusable


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder, and a project in it to be in."""
    project = tmp_path / "home/work/shop"
    project.mkdir(parents=True)
    for name in ("XDG_CONFIG_HOME", "APPDATA", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.chdir(project)
    return tmp_path / "home"


def write(file, said):
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(said if isinstance(said, str) else json.dumps(said))
    return file


def entry(**said):
    """A file with one server."""
    return {"mcpServers": {"notes": said}}


def refusal(*args, **options):
    with pytest.raises(ConfigUnusable) as refused:
        find_server(*args, **options)
    return str(refused.value)


# --- finding ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mcp.json", ("mcp.json", None)),
        ("mcp.json:notes", ("mcp.json", "notes")),
        ("mcp.json:plugin:notes", ("mcp.json", "plugin:notes")),
        (r"C:\work\mcp.json:notes", (r"C:\work\mcp.json", "notes")),
        (".vscode/mcp.jsonc:a b", (".vscode/mcp.jsonc", "a b")),
        ("claude-desktop:notes", ("claude-desktop", "notes")),
        ("cursor", ("cursor", None)),
        ("npx server --config mcp.json", None),
        ("shop:app", None),
        ("server.py", None),
        ("https://example.com/mcp", None),
    ],
)
def test_a_text_names_an_entry_if_it_begins_with_a_json_file_or_a_host(text, found, tmp_path):
    assert split(text, tmp_path) == found


def test_a_file_with_a_space_in_its_name_is_one_if_it_exists(tmp_path):
    write(tmp_path / "my servers.json", "{}")
    assert split("my servers.json:notes", tmp_path) == ("my servers.json", "notes")


@given(text=st.text(max_size=30))
def test_any_text_can_be_asked_about(text):
    split(text.replace("\0", ""), Path("/nowhere"))


def test_the_name_may_be_left_out_if_there_is_one_server(home):
    write("mcp.json", entry(command="python", args=["notes.py"]))
    found = find_server("mcp.json")
    assert found.command == ["python", "notes.py"]
    assert found.cwd == str(home / "work/shop")
    assert found.source == f"{home}/work/shop/mcp.json:notes"


def test_of_several_servers_one_must_be_named_and_the_error_lists_them(home):
    write("mcp.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    assert refusal("mcp.json") == "mcp.json has several servers; there are a, b: choose one, as in mcp.json:a"
    assert refusal("mcp.json", "c") == "mcp.json has no server 'c': there are a, b"
    assert find_server("mcp.json", "b").command == ["y"]


def test_a_disabled_server_is_used_only_by_name(home):
    write("mcp.json", {"mcpServers": {"a": {"command": "x", "disabled": True}, "b": {"command": "y"}}})
    assert find_server("mcp.json").command == ["y"]
    assert find_server("mcp.json", "a").command == ["x"]
    write("mcp.json", {"mcpServers": {"a": {"command": "x", "disabled": True}}})
    assert refusal("mcp.json") == "mcp.json has no server; there are a: choose one, as in mcp.json:a"


@pytest.mark.parametrize("text", ["{}", "", "\ufeff\n", '{"mcpServers": []}'])
def test_a_file_without_servers_says_so(home, text):
    write("mcp.json", text)
    assert refusal("mcp.json") == "mcp.json has no server; it has none"
    assert refusal("mcp.json", "notes") == "mcp.json has no server 'notes': it has none"


def test_what_is_missing_is_named_with_every_place_that_was_looked_at(home):
    assert refusal("mcp.json", "notes") == f"There is no file {home}/work/shop/mcp.json"
    assert refusal("cursor", "notes") == (
        f"Cursor is not configured here: there is no {home}/.cursor/mcp.json,"
        f" nor .cursor/mcp.json in {home}/work/shop or above"
    )
    assert refusal("claude-desktop") == (
        f"Claude Desktop is not configured here: there is no {home}/.config/Claude/claude_desktop_config.json"
    )


def test_a_broken_file_is_named_with_line_and_column(home):
    write("mcp.json", '{\n  "mcpServers": {\n    "notes": {command: 1}\n')
    assert refusal("mcp.json") == (
        f"{home}/work/shop/mcp.json, line 3, column 15: Expecting property name enclosed in double quotes"
    )
    Path("mcp.json").write_bytes(b"\xff\xfe{\x00}\x00")
    assert refusal("mcp.json") == f"{home}/work/shop/mcp.json is not UTF-8"


def test_the_file_of_vs_code_has_comments_and_trailing_commas_and_calls_them_servers(home):
    write(
        ".vscode/mcp.json",
        '{\n  // ours\n  "servers": {\n    "notes": {"command": "x", /* none */ "args": [],},\n  },\n}\n',
    )
    assert find_server("vscode", "notes").command == ["x"]
    assert find_server(".vscode/mcp.json").cwd == str(home / "work/shop")


def test_a_project_goes_before_the_user_and_both_are_listed(home):
    write(home / ".cursor/mcp.json", {"mcpServers": {"notes": {"command": "mine"}, "own": {"command": "own"}}})
    write(home / "work/.cursor/mcp.json", {"mcpServers": {"notes": {"command": "ours"}}})
    assert find_server("cursor", "notes").command == ["ours"]
    assert find_server("cursor", "notes").cwd == str(home / "work")
    assert find_server("cursor", "own").cwd == str(home / "work/shop")
    assert list(servers_in("cursor")) == ["notes", "own"]


def test_claude_code_has_servers_for_one_project_for_all_and_in_the_project(home):
    own = {"mcpServers": {"a": {"command": "local a"}}}
    write(
        home / ".claude.json",
        {
            "numStartups": 3,
            "projects": {str(home / "work"): own, "/elsewhere": {"mcpServers": {"z": {"command": "z"}}}},
            "mcpServers": {name: {"command": f"user {name}"} for name in "abc"},
        },
    )
    write(".mcp.json", {"mcpServers": {name: {"command": f"project {name}"} for name in "ab"}})
    assert find_server("claude-code", "a").command == ["local a"]
    assert find_server("claude-code", "b").command == ["project b"]
    assert find_server("claude-code", "c").command == ["user c"]
    assert sorted(servers_in("claude-code")) == ["a", "b", "c"]
    assert find_server(str(home / ".claude.json"), "a").command == ["local a"]


# --- entries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"url": "https://x.example/mcp"},
        {"type": "http", "url": "https://x.example/mcp"},
        {"type": "streamable-http", "url": "https://x.example/mcp"},
        {"httpUrl": "https://x.example/mcp", "url": "https://x.example/sse"},
    ],
)
def test_a_server_over_http_has_a_url_and_headers(home, said):
    write("mcp.json", entry(**said, headers={"X-Key": "k"}))
    found = find_server("mcp.json")
    assert (found.target, found.headers, found.cwd) == ("https://x.example/mcp", {"X-Key": "k"}, None)


def test_environment_folder_and_file_of_variables_are_read(home):
    (home / "work/shop/src").mkdir()
    write(
        "src/.env",
        "# comment\nPLAIN=1\nexport SHELL_LIKE = two words # x\n\nQUOTED=\"a # b\"\nSINGLE='x'\nBOTH=file\nnonsense\n",
    )
    said = {"command": "x", "cwd": "src", "envFile": "${workspaceFolder}/src/.env", "env": {"BOTH": "entry", "N": 1}}
    write("mcp.json", entry(**said))
    found = find_server("mcp.json")
    assert found.cwd == str(home / "work/shop/src")
    assert found.env == {
        "PLAIN": "1",
        "SHELL_LIKE": "two words",
        "QUOTED": "a # b",
        "SINGLE": "x",
        "BOTH": "entry",
        "N": "1",
    }


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("x", "it is not an object"),
        ({}, "it needs a 'command' with a list of 'args', or a 'url'"),
        ({"command": "x", "args": "y"}, "it needs a 'command' with a list of 'args', or a 'url'"),
        ({"command": "x", "env": []}, None),
        ({"command": "x", "env": ["A"]}, "'env' is not an object"),
        ({"command": "x", "cwd": "nowhere"}, "there is no folder {here}/nowhere"),
        ({"url": "ftp://x"}, "its URL begins with neither http:// nor https://: 'ftp://x'"),
        ({"url": "https://x", "headers": {"A": "b\r\nc: d"}}, "the header 'A' has characters that HTTP cannot carry"),
    ],
)
def test_an_entry_that_cannot_be_used_says_why(home, said, why):
    write("mcp.json", {"mcpServers": {"notes": said}})
    if why is None:
        assert find_server("mcp.json").env == {}
        return
    here = f"{home}/work/shop"
    assert refusal("mcp.json") == f"{here}/mcp.json, server 'notes': {why.replace('{here}', here)}"


@pytest.mark.parametrize("key", ["type", "transport"])
def test_the_old_sse_transport_is_refused_with_a_way_out(home, key):
    write("mcp.json", entry(**{key: "sse"}, url="https://x.example/sse"))
    assert "it uses the transport 'sse', which is not supported: most such servers also have a URL" in refusal(
        "mcp.json"
    )


def test_a_file_of_variables_that_is_missing_is_named(home):
    write("mcp.json", entry(command="x", envFile=".env"))
    assert refusal("mcp.json") == f"Cannot read {home}/work/shop/.env: No such file or directory"


# --- variables ----------------------------------------------------------------------------------------------------


def test_variables_are_filled_in_everywhere(home, monkeypatch):
    monkeypatch.setenv("TOKEN", "t0k")
    said = {
        "command": "${userHome}/bin/x",
        "args": ["${env:TOKEN}", "${TOKEN}!", "${PORT:-80}", "${TOKEN:-no}", "${env:PORT:-81}", "$TOKEN", "${NONE:-}"],
        "env": {
            "ROOT": "${workspaceFolder}",
            "NAME": "${workspaceFolderBasename}",
            "DIR": "a${/}b${pathSeparator}c",
            "PROJECT": "${CLAUDE_PROJECT_DIR:-.}",
        },
    }
    monkeypatch.delenv("PORT", raising=False)
    write("mcp.json", entry(**said))
    found = find_server("mcp.json")
    assert found.command == [f"{home}/bin/x", "t0k", "t0k!", "80", "t0k", "81", "$TOKEN", ""]
    assert found.env["ROOT"] == f"{home}/work/shop"
    assert found.env["NAME"] == "shop"
    assert found.env["DIR"] == "a/b/c"


def test_gemini_knows_variables_without_braces_too(home, monkeypatch):
    monkeypatch.setenv("TOKEN", "t0k")
    write(home / ".gemini/settings.json", entry(command="x", args=["$TOKEN", "${TOKEN}", "$1", "$NOT_SET_HERE"]))
    assert find_server("gemini").command == ["x", "t0k", "t0k", "$1", "$NOT_SET_HERE"]


def test_a_variable_that_is_not_set_is_named_with_its_place(home, monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    write("mcp.json", entry(command="x", env={"KEY": "a ${env:NOT_SET}"}))
    assert refusal("mcp.json").endswith(
        "server 'notes': 'env.KEY' needs the environment variable NOT_SET, which is not set"
    )
    write("mcp.json", entry(command="x", args=["${command:pick}"]))
    assert refusal("mcp.json").endswith("server 'notes': nothing here can fill in ${command:pick} (in 'args')")


def test_variables_of_other_servers_are_not_needed(home):
    write("mcp.json", {"mcpServers": {"a": {"command": "${NOT_SET_HERE}"}, "b": {"command": "y"}}})
    assert find_server("mcp.json", "b").command == ["y"]


# --- inputs -------------------------------------------------------------------------------------------------------

INPUTS = {
    "inputs": [
        {"type": "promptString", "id": "api-key", "description": "Key of the API", "password": True},
        {"type": "promptString", "id": "port", "default": "80"},
        {"broken": 1},
    ],
    "servers": {"notes": {"command": "x", "args": ["${input:api-key}", "${input:api-key}", "${input:port}"]}},
}


def test_an_input_comes_from_whoever_is_asked_once_and_else_from_its_default(home):
    asked = []

    def ask(wanted: Input):
        asked.append(wanted)
        return "s3cret" if wanted.password else None

    write("mcp.json", INPUTS)
    assert find_server("mcp.json", ask=ask).command == ["x", "s3cret", "s3cret", "80"]
    assert [each.id for each in asked] == ["api-key", "port"]
    assert asked[0].description == "Key of the API"


def test_an_input_comes_from_the_environment_first(home, monkeypatch):
    monkeypatch.setenv("ANTIPHON_INPUT_API_KEY", "from outside")
    write("mcp.json", INPUTS)
    assert find_server("mcp.json").command == ["x", "from outside", "from outside", "80"]


def test_an_input_that_nothing_gives_is_named_with_the_variable_to_set(home):
    write("mcp.json", INPUTS)
    assert refusal("mcp.json").endswith(
        "server 'notes': 'args' needs the input 'api-key' (Key of the API):"
        " set the environment variable ANTIPHON_INPUT_API_KEY"
    )
