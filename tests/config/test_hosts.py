"""Where each host keeps its configuration, on every platform, and how it writes an entry."""

import pytest

from antiphon.config.hosts import HOSTS, Machine, entry, project_files, project_of, user_file

LINUX = Machine(platform="linux", variables={}, home="/home/ada", folder="/home/ada/work/shop")
MAC = Machine(platform="darwin", variables={}, home="/Users/ada", folder="/Users/ada/shop")
WINDOWS = Machine(
    platform="win32", variables={"APPDATA": r"D:\Roaming"}, home=r"C:\Users\ada", folder=r"C:\Users\ada\shop"
)

USER_FILES = [
    ("claude-code", LINUX, "/home/ada/.claude.json"),
    ("claude-code", MAC, "/Users/ada/.claude.json"),
    ("claude-code", WINDOWS, r"C:\Users\ada\.claude.json"),
    ("claude-desktop", LINUX, "/home/ada/.config/Claude/claude_desktop_config.json"),
    ("claude-desktop", MAC, "/Users/ada/Library/Application Support/Claude/claude_desktop_config.json"),
    ("claude-desktop", WINDOWS, r"D:\Roaming\Claude\claude_desktop_config.json"),
    ("cursor", LINUX, "/home/ada/.cursor/mcp.json"),
    ("cursor", MAC, "/Users/ada/.cursor/mcp.json"),
    ("cursor", WINDOWS, r"C:\Users\ada\.cursor\mcp.json"),
    ("gemini", LINUX, "/home/ada/.gemini/settings.json"),
    ("gemini", MAC, "/Users/ada/.gemini/settings.json"),
    ("gemini", WINDOWS, r"C:\Users\ada\.gemini\settings.json"),
    ("vscode", LINUX, "/home/ada/.config/Code/User/mcp.json"),
    ("vscode", MAC, "/Users/ada/Library/Application Support/Code/User/mcp.json"),
    ("vscode", WINDOWS, r"D:\Roaming\Code\User\mcp.json"),
]


@pytest.mark.parametrize(("host", "machine", "file"), USER_FILES)
def test_the_file_of_the_user_is_where_the_host_keeps_it(host, machine, file):
    assert str(user_file(HOSTS[host], machine)) == file


@pytest.mark.parametrize(
    ("host", "machine", "file"),
    [
        ("claude-code", ("linux", {"CLAUDE_CONFIG_DIR": "/etc/claude"}), "/etc/claude/.claude.json"),
        ("gemini", ("linux", {"GEMINI_CLI_HOME": "/srv"}), "/srv/.gemini/settings.json"),
        ("vscode", ("linux", {"XDG_CONFIG_HOME": "/cfg"}), "/cfg/Code/User/mcp.json"),
        ("vscode", ("win32", {}), r"C:\Users\ada\AppData\Roaming\Code\User\mcp.json"),
    ],
)
def test_variables_of_the_environment_move_it(host, machine, file):
    platform, variables = machine
    home = r"C:\Users\ada" if platform == "win32" else "/home/ada"
    where = Machine(platform=platform, variables=variables, home=home, folder=home)
    assert str(user_file(HOSTS[host], where)) == file


def test_a_project_is_looked_for_in_the_folder_and_above_it_but_not_in_the_home_folder():
    assert [str(file) for file in project_files(HOSTS["cursor"], LINUX)] == [
        "/home/ada/work/shop/.cursor/mcp.json",
        "/home/ada/work/.cursor/mcp.json",
    ]
    assert [str(file) for file in project_files(HOSTS["vscode"], WINDOWS)] == [r"C:\Users\ada\shop\.vscode\mcp.json"]
    assert list(project_files(HOSTS["claude-desktop"], LINUX)) == []


@pytest.mark.parametrize("name", [".vscode/mcp.json", ".cursor/mcp.json", ".gemini/settings.json", ".mcp.json"])
def test_a_file_is_about_the_folder_of_its_project(name):
    assert str(project_of(LINUX.path(f"/p/{name}"))) == "/p"


COMMAND = ["/venv/bin/python", "-m", "antiphon", "serve", "/p/notes.py"]
PLAIN = {"command": COMMAND[0], "args": COMMAND[1:]}
HEADERS = {"Authorization": "Bearer x"}


@pytest.mark.parametrize(
    ("host", "started", "over_http"),
    [
        ("claude-code", {"type": "stdio", **PLAIN}, {"type": "http", "url": "https://x.example/mcp"}),
        ("claude-desktop", PLAIN, None),
        ("cursor", PLAIN, {"url": "https://x.example/mcp"}),
        ("gemini", PLAIN, {"httpUrl": "https://x.example/mcp"}),
        ("vscode", {"type": "stdio", **PLAIN}, {"type": "http", "url": "https://x.example/mcp"}),
    ],
)
def test_an_entry_is_written_as_the_host_reads_it(host, started, over_http):
    assert entry(HOSTS[host], COMMAND, {}, {}) == started
    assert entry(HOSTS[host], COMMAND, {"A": "b"}, {}) == {**started, "env": {"A": "b"}}
    if over_http is None:
        assert HOSTS[host].url == ""
    else:
        assert entry(HOSTS[host], "https://x.example/mcp", {}, {}) == over_http
        assert entry(HOSTS[host], "https://x.example/mcp", {}, HEADERS) == {**over_http, "headers": HEADERS}
