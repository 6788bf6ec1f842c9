"""The programs that keep MCP servers in a configuration file: where each keeps it, and how it writes an entry.

Everything is computed from the platform, the environment and two folders, so that any machine can be asked about.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Final, Literal

import msgspec

from antiphon.types import JsonObject

Scope = Literal["user", "project"]


class HostProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that keeps MCP servers in a configuration file."""

    title: str
    user: str
    """Its file, below the folder that ``base`` names."""
    base: Literal["home", "settings"] = "home"
    moved_by: str = ""
    """The variable that replaces the home folder."""
    project: str = ""
    """Its file in a project, if it has one."""
    key: str = "mcpServers"
    url: str = "url"
    """What it calls the URL of a server over HTTP; empty if it starts commands only."""
    types: bool = False
    """Whether an entry says its type."""
    dollar: bool = False
    """Whether $NAME is a variable, as ${NAME} is."""


HOSTS: Final[Mapping[str, HostProgram]] = {
    "claude-code": HostProgram(
        title="Claude Code", user=".claude.json", moved_by="CLAUDE_CONFIG_DIR", project=".mcp.json", types=True
    ),
    "claude-desktop": HostProgram(
        title="Claude Desktop", user="Claude/claude_desktop_config.json", base="settings", url=""
    ),
    "cursor": HostProgram(title="Cursor", user=".cursor/mcp.json", project=".cursor/mcp.json"),
    "gemini": HostProgram(
        title="Gemini CLI",
        user=".gemini/settings.json",
        moved_by="GEMINI_CLI_HOME",
        project=".gemini/settings.json",
        url="httpUrl",
        dollar=True,
    ),
    "vscode": HostProgram(
        title="VS Code",
        user="Code/User/mcp.json",
        base="settings",
        project=".vscode/mcp.json",
        key="servers",
        types=True,
    ),
}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What determines where files are: a platform as in sys.platform, the environment, and two folders."""

    platform: str
    variables: Mapping[str, str]
    home: str
    folder: str

    def path(self, text: str) -> PurePath:
        return PureWindowsPath(text) if self.platform == "win32" else PurePosixPath(text)

    @property
    def settings(self) -> PurePath:
        """The folder in which desktop programs keep their settings."""
        home = self.path(self.home)
        match self.platform:
            case "win32":
                return self.path(self.variables.get("APPDATA") or str(home / "AppData" / "Roaming"))
            case "darwin":
                return home / "Library" / "Application Support"
            case _:
                return self.path(self.variables.get("XDG_CONFIG_HOME") or str(home / ".config"))


def user_file(host: HostProgram, machine: Machine) -> PurePath:
    """Return the file of the user's own servers."""
    if host.base == "settings":
        return machine.settings / host.user
    return machine.path(machine.variables.get(host.moved_by) or machine.home) / host.user


def project_files(host: HostProgram, machine: Machine) -> Iterator[PurePath]:
    """Return where the file of a project may be: in the folder, and in those above it, up to the home folder."""
    folder, home = machine.path(machine.folder), machine.path(machine.home)
    for place in (folder, *folder.parents) if host.project else ():
        if place == home and place != folder:
            return
        yield place / host.project


def project_of(file: PurePath) -> PurePath:
    """Return the folder that a file is about: the one that contains it, or its .vscode, .cursor or .gemini."""
    folder = file.parent
    return folder.parent if folder.name in {".vscode", ".cursor", ".gemini"} else folder


def entry(
    host: HostProgram, target: str | Sequence[str], env: Mapping[str, str], headers: Mapping[str, str]
) -> JsonObject:
    """Return the entry that this host needs to reach a server: a URL, or a command to start."""
    if isinstance(target, str):
        kind = {"type": "http"} if host.types else {}
        return {**kind, host.url: target, **({"headers": dict(headers)} if headers else {})}
    command, *args = target
    kind = {"type": "stdio"} if host.types else {}
    return {**kind, "command": command, "args": args, **({"env": dict(env)} if env else {})}
