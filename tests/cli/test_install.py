"""Writing a server into the configuration of a host: its entry and nothing else changes."""

import json
import os
import re
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.cli import commands
from antiphon.cli.install import lasting_command
from antiphon.cli.target import ServerTarget, read_target
from antiphon.config import jsonc
from antiphon.config.hosts import HOSTS

from .pseudo_terminal import ENTER, PseudoTerminal

SAMPLES = Path(__file__).with_name("configurations")
SERVER = (
    "from antiphon import Server\n\napp = Server('notes')\n\n@app.tool\ndef add(title: str) -> str:\n    return title\n"
)
FILES = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "vscode": ".config/Code/User/mcp.json",
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder of one's own, and a folder with a server to be in."""
    for name in ("XDG_CONFIG_HOME", "APPDATA", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.platform", "linux")
    (tmp_path / "home/work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home/work")
    Path("notes.py").write_text(SERVER)
    return tmp_path / "home"


@pytest.fixture
def run(home):
    return lambda *words: CliRunner().invoke(commands, words, prog_name="antiphon", catch_exceptions=False)


def sample(host, home):
    """A host's file with what people have in it."""
    file = home / FILES[host]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes((SAMPLES / f"{host}.json").read_bytes())
    return file


def expected_entry(home, **more):
    args = ["-m", "antiphon", "serve", f"{home}/work/notes.py"]
    return {"command": sys.executable, "args": args, **more}


def without_entry(after, key):
    """A changed text with the entry taken out by hand: from the comma before its line to its closing brace."""
    document = jsonc.JsonText(after)
    servers = next(member for member in document.members(document.start) if member.name == key)
    *others, added = document.members(servers.value)
    assert added.name == "notes"
    start = len(after[: added.start].rstrip())
    end = added.end if added.comma is None else added.comma + 1
    text = after[:start] + after[end:]
    if added.comma is None:
        text = text[: others[-1].comma] + text[others[-1].comma + 1 :]
    return text


# --- every host ---------------------------------------------------------------------------------------------------

LAYOUTS = {
    "as it is": lambda data: data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "tabs": lambda data: re.sub(rb"(?m)^ +", lambda spaces: b"\t" * len(spaces[0]), data),
    "no end of line": lambda data: data.rstrip(b"\n"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("host", HOSTS)
def test_a_real_file_is_the_same_byte_for_byte_apart_from_the_entry(host, layout, home, run):
    file = sample(host, home)
    before = LAYOUTS[layout](file.read_bytes())
    file.write_bytes(before)
    done = run("install", "notes.py", "--in", host, "--yes")
    assert done.exit_code == 0, done.output
    after = file.read_bytes()
    kind = {"type": "stdio"} if host in {"claude-code", "vscode"} else {}
    value = jsonc.load(after.decode())
    assert value[HOSTS[host].key].pop("notes") == {**kind, **expected_entry(home)}
    if host == "gemini":  # it had no servers: the section is new as well
        assert value.pop("mcpServers") == {}
        removed = jsonc.without_member(after.decode(), ["mcpServers"])
    else:
        removed = without_entry(after.decode(), HOSTS[host].key)
    assert value == jsonc.load(before.decode())
    assert removed.encode() == before
    assert file.with_name(f"{file.name}.antiphon-backup").read_bytes() == before
    assert (b"\n" in after.replace(b"\r\n", b"")) is (layout != "CRLF")


@pytest.mark.parametrize("host", [host for host in HOSTS if host != "gemini"])
def test_uninstalling_gives_back_the_same_bytes(host, home, run):
    file = sample(host, home)
    before = file.read_bytes()
    assert run("install", "notes.py", "--in", host, "-y").exit_code == 0
    done = run("uninstall", "notes", "--in", host, "-y")
    assert done.exit_code == 0, done.output
    assert file.read_bytes() == before


@pytest.mark.parametrize("host", HOSTS)
def test_a_file_that_is_not_there_is_made_and_only_the_user_can_read_it(host, home, run):
    assert run("install", "notes.py", "--in", host, "-y").exit_code == 0
    said = json.loads((home / FILES[host]).read_text())[HOSTS[host].key]["notes"]
    assert (said["command"], said["args"]) == (sys.executable, expected_entry(home)["args"])
    assert stat.S_IMODE((home / FILES[host]).stat().st_mode) == 0o600


def test_the_command_that_is_written_works_from_any_folder(home, run):
    assert run("install", "notes.py", "--in", "cursor", "-y").exit_code == 0
    said = json.loads((home / FILES["cursor"]).read_text())["mcpServers"]["notes"]
    done = subprocess.run([said["command"], *said["args"]], cwd="/", input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("host", HOSTS)
def test_a_broken_file_is_refused_and_left_alone(host, home, run):
    file = sample(host, home)
    broken = file.read_bytes().rstrip()[:-1]
    file.write_bytes(broken)
    line = broken.count(b"\n") + 1
    for words in (("install", "notes.py"), ("uninstall", "notes")):
        done = run(*words, "--in", host, "--yes")
        assert done.exit_code == 3
        assert f"Error: {file} is not JSON, and is left as it is: line {line}, column" in done.output
    assert file.read_bytes() == broken
    assert [*file.parent.glob(f"{file.name}*")] == [file]


@pytest.mark.parametrize("text", ["[]", '{"mcpServers": []}', '{"mcpServers": "x"}', "1"])
def test_a_file_of_another_shape_is_left_alone(text, home, run):
    file = sample("cursor", home)
    file.write_text(text)
    done = run("install", "notes.py", "--in", "cursor", "--yes")
    assert done.exit_code == 3
    assert f"{file} is left as it is: 'mcpServers' in it is not an object" in done.output
    assert file.read_text() == text


# --- the entry ----------------------------------------------------------------------------------------------------


def test_print_prints_the_entry_and_writes_nothing(home, run):
    done = run("install", "notes.py", "--in", "vscode", "--env", "DB=/data/x=y", "--name", "my-notes", "--print")
    assert json.loads(done.stdout) == {
        "servers": {"my-notes": {"type": "stdio", **expected_entry(home, env={"DB": "/data/x=y"})}}
    }
    assert not (home / ".config").exists()


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("claude-code", {"type": "http", "url": "https://mcp.acme.example/mcp"}),
        ("cursor", {"url": "https://mcp.acme.example/mcp"}),
        ("gemini", {"httpUrl": "https://mcp.acme.example/mcp"}),
        ("vscode", {"type": "http", "url": "https://mcp.acme.example/mcp"}),
    ],
)
def test_a_url_is_written_as_the_host_reads_it_under_the_name_of_its_site(host, said, run):
    done = run("install", "https://mcp.acme.example/mcp", "--in", host, "--header", "X-Key: k", "--print")
    assert json.loads(done.stdout) == {HOSTS[host].key: {"acme": {**said, "headers": {"X-Key": "k"}}}}


def test_a_url_is_bridged_for_a_host_that_starts_commands_only(home, run):
    done = run("install", "https://mcp.acme.example/mcp", "--in", "claude-desktop", "--header", "X-Key: k", "--yes")
    assert "Claude Desktop takes no URL in its file, so the bridge stands between." in done.output
    (file,) = home.rglob("claude_desktop_config.json")
    args = ["-m", "antiphon", "bridge", "https://mcp.acme.example/mcp", "--header", "X-Key: k"]
    assert json.loads(file.read_text())["mcpServers"] == {"acme": {"command": sys.executable, "args": args}}


def test_a_command_keeps_its_words_but_files_among_them_are_found_from_any_folder(home, run):
    Path("run.sh").write_text("")
    words = f"{sys.executable} run.sh -y @scope/server --port 80 missing.txt"
    done = run("install", words, "--in", "cursor", "--name", "x", "--print")
    args = [f"{home}/work/run.sh", "-y", "@scope/server", "--port", "80", "missing.txt"]
    assert json.loads(done.stdout)["mcpServers"]["x"]["args"] == args


def test_one_server_of_a_file_can_be_named(home, run):
    done = run("install", "notes.py:app", "--in", "cursor", "--print")
    assert json.loads(done.stdout)["mcpServers"]["notes"]["args"][-1] == f"{home}/work/notes.py:app"


def test_a_server_of_another_library_is_started_by_its_file(home, run):
    Path("other file.py").write_text("from fastmcp import FastMCP\n")
    done = run("install", "other file.py", "--in", "cursor", "--print")
    assert json.loads(done.stdout)["mcpServers"] == {
        "other-file": {"command": sys.executable, "args": [f"{home}/work/other file.py"]}
    }


def test_an_environment_of_uvx_is_not_relied_on():
    serve = [sys.executable, "-m", "antiphon", "serve", "/p/notes.py"]
    stays, why = lasting_command(serve, prefix="/p/.venv", uvx="/bin/uvx")
    assert stays == serve
    assert "the Python of this environment, /p/.venv" in why
    cache = "/home/ada/.cache/uv/archive-v0/x1y2z3"
    lasting, why = lasting_command(serve, prefix=cache, uvx="/bin/uvx")
    assert lasting == ["/bin/uvx", "antiphon", "serve", "/p/notes.py"]
    assert "put --with PACKAGE before antiphon" in why
    for words, uvx in ((serve, None), ([sys.executable, "/p/other.py"], "/bin/uvx")):
        with pytest.raises(Exception, match="uv may remove the environment"):
            lasting_command(words, prefix=cache, uvx=uvx)


def test_an_entry_is_named_after_the_file_the_host_or_the_command(home):
    for text, name in {
        "notes.py": "notes",
        "notes.py:app": "notes",
        "https://mcp.shop.example/mcp": "shop",
        "https://www.mcp/": "server",
        f"{sys.executable} -m some.thing --stdio": "some",
        f"{sys.executable} -m some.thing sk-12345": "some",
        f"{sys.executable} -W ignore other.py -m sk-12345": "other",
        f"{sys.executable} script -m sk-12345": Path(sys.executable).stem,
        "env": "env",
        "env sk-12345": "env",
        "env KEY=sk-12345 notes.py --token sk-12345": "notes",
    }.items():
        assert read_target(text).name == name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npx -y @scope/some-server@1.2 sk-12345", "some-server"),
        ("uvx some-server==1.0 --key sk-12345", "some-server"),
        ("npx --key sk-12345 some-server", "npx"),
        ("docker run -i --env KEY=sk-12345 image sk-12345", "docker"),
    ],
)
def test_a_word_that_may_be_a_secret_is_not_the_name_of_an_entry(command, name):
    assert ServerTarget(text=command, command=command.split()).name == name


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["notes.py"], 2, "Missing option '--in'"),
        (["notes.py", "--in", "emacs"], 2, "'emacs' is not one of 'claude-code', 'claude-desktop', 'cursor', 'gemini'"),
        (["nots.py", "--in", "cursor"], 2, "There is no file nots.py"),
        (["broken.py", "--in", "cursor"], 1, "NameError: name 'oops' is not defined"),
        (["empty.py", "--in", "cursor"], 2, "empty.py has no Server"),
        (["cursor:notes", "--in", "vscode"], 2, "cursor:notes is an entry of a configuration already"),
        (["notes.py", "--in", "cursor", "--name", "a b"], 2, "The name 'a b' may have letters, digits, - and _ only"),
        (["http://[x", "--in", "cursor"], 2, "The URL is malformed"),
        (["http://x:secret/", "--in", "cursor"], 2, "The URL is malformed"),
        (["notes.py", "--in", "cursor", "--env", "X"], 2, "expected KEY=VALUE, got 'X'"),
        (["notes.py", "--in", "cursor", "--header", "A: b"], 2, "--header can only be used with a URL"),
        (["https://x.example/mcp", "--in", "cursor", "--env", "A=b"], 2, "--env is for a server that is started"),
        (["notes.py", "--in", "claude-desktop", "--project"], 2, "Claude Desktop has no configuration for a project"),
        (["notes.py", "--in", "cursor"], 2, "Nothing was changed. Pass --yes: there is no terminal to ask in"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_written(words, code, told, home, run):
    Path("broken.py").write_text("import antiphon\noops\n")
    Path("empty.py").write_text("import antiphon\n")
    done = run("install", *words)
    assert (done.exit_code, told in done.output) == (code, True), done.output
    assert not (home / ".cursor").exists()


# --- the file -----------------------------------------------------------------------------------------------------


def test_a_project_has_a_file_of_its_own_that_others_can_read(home, run):
    assert run("install", "notes.py", "--in", "vscode", "--project", "-y").exit_code == 0
    file = home / "work/.vscode/mcp.json"
    assert list(json.loads(file.read_text())["servers"]) == ["notes"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert not (home / ".config").exists()


def test_the_section_of_a_project_in_the_file_of_claude_code_is_not_touched(home, run):
    file = sample("claude-code", home)
    projects = json.loads(file.read_text())["projects"]
    assert run("install", "notes.py", "--in", "claude-code", "-y").exit_code == 0
    assert json.loads(file.read_text())["projects"] == projects


def test_an_entry_that_is_there_is_replaced_alone_and_one_that_is_the_same_is_left(home, run):
    file = sample("cursor", home)
    before = file.read_text()
    done = run("install", "notes.py", "--in", "cursor", "--name", "figma", "-y")
    assert f"Replace figma in {file}" in done.output
    after = file.read_text()
    old, new = '{"url": "http://127.0.0.1:3845/mcp"}', after[after.index('"figma":   ') + 11 : after.rindex("\n\t}")]
    assert after == before.replace(old, new)
    assert json.loads(new) == expected_entry(home)
    again = run("install", "notes.py", "--in", "cursor", "--name", "figma", "-y")
    assert again.exit_code == 0
    assert f"figma is in {file} already. Nothing was changed." in again.output


def test_a_link_stays_a_link_and_permissions_stay(home, run):
    real = home / "dotfiles/cursor.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    file = home / FILES["cursor"]
    file.parent.mkdir()
    file.symlink_to(real)
    assert run("install", "notes.py", "--in", "cursor", "-y").exit_code == 0
    assert file.is_symlink()
    assert "notes" in real.read_text()
    assert [stat.S_IMODE(each.stat().st_mode) for each in sorted(real.parent.iterdir())] == [0o640, 0o640]


def test_a_file_that_may_not_be_written_is_left_alone(home, run, monkeypatch):
    file = sample("cursor", home)
    before = file.read_bytes()
    # Not by chmod: tests may run as root, who may write everything.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    done = run("install", "notes.py", "--in", "cursor", "-y")
    assert (done.exit_code, f"Cannot write to {file}: it is read-only" in done.output) == (3, True)
    assert file.read_bytes() == before
    assert [*file.parent.iterdir()] == [file]


def test_a_write_that_fails_leaves_the_file_as_it_was(home, run, monkeypatch):
    file = sample("cursor", home)
    before = file.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run("install", "notes.py", "--in", "cursor", "-y")
    assert (done.exit_code, "No space left on device" in done.output) == (3, True)
    assert file.read_bytes() == before
    assert [*file.parent.iterdir()] == [file]


def test_what_the_host_writes_while_the_user_is_asked_is_kept(home, run, monkeypatch):
    file = sample("cursor", home)

    def meanwhile(*_, **__):
        file.write_text(file.read_text().replace("context7", "renamed"))

    monkeypatch.setattr("antiphon.cli.install._confirm", meanwhile)
    assert run("install", "notes.py", "--in", "cursor").exit_code == 0
    assert list(json.loads(file.read_text())["mcpServers"]) == ["renamed", "figma", "notes"]


def test_uninstalling_what_is_not_there_says_what_is(home, run):
    sample("cursor", home)
    done = run("uninstall", "notes", "--in", "cursor", "-y")
    assert done.exit_code == 2
    assert f"{home}/.cursor/mcp.json has no server 'notes': it has context7, figma." in done.output
    assert run("install", "notes.py", "--in", "cursor", "--project", "-y").exit_code == 0
    done = run("uninstall", "notes", "--in", "cursor", "-y")
    assert f"It is in {home}/work/.cursor/mcp.json: pass --project." in done.output
    assert run("uninstall", "notes", "--in", "cursor", "--project", "-y").exit_code == 0


# --- in a terminal ------------------------------------------------------------------------------------------------


def test_the_entry_is_shown_and_written_only_after_a_yes(home):
    file = sample("cursor", home)
    before = file.read_bytes()
    command = [sys.executable, "-m", "antiphon", "install", "notes.py", "--in", "cursor"]
    with closing(PseudoTerminal(command, cwd=home / "work", columns=160)) as terminal:
        terminal.sees(f"Add to {file}", '"notes": {', f'"{home}/work/notes.py"', "Write it? [Y/n]").types("n", ENTER)
        assert terminal.ends() == 1
        assert "Nothing was changed." in terminal.text
    assert file.read_bytes() == before
    with closing(PseudoTerminal(command, cwd=home / "work", columns=160)) as terminal:
        terminal.sees("Write it? [Y/n]").types(ENTER)
        assert terminal.ends() == 0
        assert "Call it with  antiphon call cursor:notes" in terminal.text
    assert "notes" in json.loads(file.read_text())["mcpServers"]
