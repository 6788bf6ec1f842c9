"""The servers of a configuration file: found by the name of a file or a host, with their variables filled in."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from antiphon.config.hosts import HOSTS, Machine, project_files, project_of, user_file
from antiphon.config.jsonc import load
from antiphon.errors import ConfigUnusable
from antiphon.types import JsonObject

_FILE: Final = re.compile(r"(?P<place>.+?\.jsonc?)(?::(?P<name>.*))?", re.DOTALL)
_BRACES: Final = re.compile(r"\$\{([^{}]*)\}")
_DOLLAR: Final = re.compile(r"\$\{([^{}]*)\}|\$([A-Za-z_]\w*)")
_NAME: Final = re.compile(r"(?:env:)?([A-Za-z_][\w().]*)(?::-(.*))?", re.DOTALL)
_LINE: Final = re.compile(r"\s*(?:export\s+)?([\w.-]+)\s*=\s*(.*?)\s*", re.DOTALL)
_OLD: Final = {"sse", "ws", "websocket"}


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A value that VS Code asks for: ``${input:id}``."""

    id: str
    type: str = "promptString"
    description: str = ""
    default: str | None = None
    password: bool = False
    options: list[Any] = []

    @property
    def variable(self) -> str:
        """The environment variable that gives it."""
        return "ANTIPHON_INPUT_" + re.sub(r"\W", "_", self.id).upper()


AskInput: TypeAlias = Callable[[Input], str | None]


class ConfiguredServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server as a configuration file has it: a URL with headers, or a command with its environment and folder."""

    source: str
    """``FILE:NAME``, which finds it again."""
    url: str = ""
    headers: dict[str, str] = {}
    command: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None

    @property
    def target(self) -> str | list[str]:
        """What a Client takes."""
        return self.url or self.command


# --- finding ------------------------------------------------------------------------------------------------------


def split(text: str, folder: Path) -> tuple[str, str | None] | None:
    """Split ``mcp.json:notes`` or ``cursor:notes`` into place and name, which may be missing; None if it is neither."""
    found = _FILE.fullmatch(text)
    if found is not None and ((folder / found["place"]).is_file() or not re.search(r"\s", found["place"])):
        return found["place"], found["name"] or None
    place, _, name = text.partition(":")
    return (place, name or None) if place in HOSTS else None


def here(folder: Path | None = None) -> Machine:
    """Return this machine, seen from a folder."""
    place = (folder or Path()).absolute()
    return Machine(platform=sys.platform, variables=os.environ, home=str(Path.home()), folder=str(place))


def servers_in(place: str, folder: Path | None = None) -> dict[str, "ServerEntry"]:
    """Return the servers of a file, or those that a host finds in a folder, by name; the nearest of a name counts."""
    machine = here(folder)
    found = [entry for file, project in _files(place, machine) for entry in _entries(file, project, machine)]
    nearest: dict[str, ServerEntry] = {}
    for entry in sorted(found, key=lambda each: not each.is_own):
        nearest.setdefault(entry.name, entry)
    return nearest


def find_server(
    place: str, name: str | None = None, *, folder: Path | None = None, ask: AskInput | None = None
) -> ConfiguredServer:
    """Return a server of a file or a host, its variables filled in from the environment, and from ``ask``.

    The name may be left out if there is one server that is not disabled. Raise ConfigUnusable.
    """
    found = servers_in(place, folder)
    enabled = [each for each, entry in found.items() if not entry.is_disabled]
    if name is None and len(enabled) == 1:
        name = enabled[0]
    if name is None or name not in found:
        have = f"there are {', '.join(found)}" if found else "it has none"
        if name is not None:
            raise ConfigUnusable(f"{place} has no server {name!r}: {have}")
        choose = f": choose one, as in {place}:{next(iter(found))}" if found else ""
        raise ConfigUnusable(f"{place} has {'several servers' if enabled else 'no server'}; {have}{choose}")
    return found[name].resolved(ask or (lambda _: None))


def open_config(
    file: str | os.PathLike[str],
    name: str | None = None,
    inputs: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> ConfiguredServer:
    """Return a server of a file or a host; without a name, the text may have it: ``mcp.json:notes``."""
    place = (str(file), name) if name else split(str(file), folder or Path()) or (str(file), None)
    given = inputs or {}
    return find_server(*place, folder=folder, ask=lambda wanted: given.get(wanted.id))


def _files(place: str, machine: Machine) -> list[tuple[Path, str]]:
    """Return the files to read, and the project that each is about."""
    host = HOSTS.get(place)
    if host is None:
        file = Path(machine.folder, Path(place).expanduser())
        if not file.is_file():
            raise ConfigUnusable(f"There is no file {file}")
        own = {user_file(each, machine) for each in HOSTS.values()}
        return [(file, machine.folder if file in own else str(project_of(file)))]
    user = Path(user_file(host, machine))
    nearest = next((Path(each) for each in project_files(host, machine) if Path(each).is_file()), None)
    files = [] if nearest is None else [(nearest, str(project_of(nearest)))]
    files += [(user, machine.folder)] if user.is_file() else []
    if not files:
        project = f", nor {host.project} in {machine.folder} or above" if host.project else ""
        raise ConfigUnusable(f"{host.title} is not configured here: there is no {user}{project}")
    return files


def read_text(file: Path) -> str:
    """Return a file's text as it is, line ends and byte order mark included."""
    try:
        return file.read_bytes().decode()
    except OSError as fault:
        raise ConfigUnusable(f"Cannot read {file}: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigUnusable(f"{file} is not UTF-8") from None


def _entries(file: Path, project: str, machine: Machine) -> list["ServerEntry"]:
    text = read_text(file)
    try:
        root = load(text)
    except ConfigUnusable as fault:
        raise ConfigUnusable(f"{file}, {fault}") from None
    own = _inside(root, "projects")
    here_and_above = [machine.path(project), *machine.path(project).parents]
    # Claude Code writes / on Windows, too.
    names = [name for each in here_and_above for name in (str(each), each.as_posix())]
    local: object = next((own[name] for name in names if name in own), {})
    inputs = _inputs(root)
    return [
        ServerEntry(
            name=name,
            file=file,
            project=project,
            said=said,
            inputs=inputs,
            variables=machine.variables,
            is_own=section is local,
        )
        for section in (local, root, _inside(root, "mcp"))
        for key in ("mcpServers", "servers")
        for name, said in _inside(section, key).items()
    ]


def _inside(value: Any, key: str) -> JsonObject:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _inputs(root: Any) -> dict[str, Input]:
    listed = root.get("inputs") if isinstance(root, dict) else None
    usable: dict[str, Input] = {}
    for said in listed if isinstance(listed, list) else ():
        try:
            read = msgspec.convert(said, Input)
        except msgspec.ValidationError:
            continue
        usable[read.id] = read
    return usable


# --- an entry -----------------------------------------------------------------------------------------------------


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration file says about a server."""

    name: str
    file: Path
    project: str
    """The folder that stands for ${workspaceFolder}, and that a command starts in."""
    said: Any
    inputs: Mapping[str, Input]
    variables: Mapping[str, str]
    is_own: bool = False
    """Whether it is the user's own for this project alone, which goes before the project's."""

    @property
    def is_disabled(self) -> bool:
        return isinstance(self.said, dict) and (self.said.get("disabled") is True or self.said.get("enabled") is False)

    def resolved(self, ask: AskInput) -> ConfiguredServer:
        """Return the server with its variables filled in. Raise ConfigUnusable."""
        if not isinstance(self.said, dict):
            raise self.unusable("it is not an object")
        said: JsonObject = _Filling(self, ask).filled(self.said, "")
        source = f"{self.file}:{self.name}"
        kind = said.get("type") or said.get("transport")
        url = said.get("httpUrl") or said.get("url")
        if kind in _OLD:
            raise self.unusable(
                f"it uses the transport {kind!r}, which is not supported: most such servers also have a URL for"
                " Streamable HTTP, often ending in /mcp (type 'http')"
            )
        if isinstance(url, str) and url:
            if not url.startswith(("http://", "https://")):
                raise self.unusable(f"its URL begins with neither http:// nor https://: {url!r}")
            headers = self._texts(said, "headers")
            for header, value in headers.items():
                if not (value.isascii() and value.isprintable() and header.isascii() and header.isprintable()):
                    raise self.unusable(f"the header {header!r} has characters that HTTP cannot carry")
            return ConfiguredServer(source=source, url=url, headers=headers)
        command, args = said.get("command"), said.get("args", [])
        if not isinstance(command, str) or not command or not isinstance(args, list):
            raise self.unusable("it needs a 'command' with a list of 'args', or a 'url'")
        # A relative folder is one of the project.
        cwd = Path(self.project, os.path.expanduser(str(said.get("cwd") or ".")))  # noqa: PTH111 -- it may be no path yet
        if not cwd.is_dir():
            raise self.unusable(f"there is no folder {cwd}")
        env = {**self._env_file(said.get("envFile")), **self._texts(said, "env")}
        return ConfiguredServer(source=source, command=[command, *map(str, args)], env=env, cwd=str(cwd))

    def unusable(self, why: str) -> ConfigUnusable:
        return ConfigUnusable(f"{self.file}, server {self.name!r}: {why}")

    def _texts(self, said: JsonObject, key: str) -> dict[str, str]:
        values = said.get(key) or {}
        if not isinstance(values, dict):
            raise self.unusable(f"{key!r} is not an object")
        return {
            name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for name, value in values.items()
            if value is not None
        }

    def _env_file(self, name: object) -> dict[str, str]:
        if not name:
            return {}
        found: dict[str, str] = {}
        for line in read_text(Path(self.project, str(name))).removeprefix("\ufeff").splitlines():
            read = _LINE.fullmatch(line)
            if read is None or line.lstrip().startswith("#"):
                continue
            value = read[2]
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            else:
                value = re.sub(r"\s+#.*", "", value)
            found[read[1]] = value
        return found


class _Filling:
    """Fills in the variables of an entry; asks for each input once."""

    def __init__(self, entry: ServerEntry, ask: AskInput) -> None:
        self._entry = entry
        self._ask = ask
        self._given: dict[str, str] = {}
        # The user's file of Gemini CLI and a project's are both in .gemini.
        self._pattern = _DOLLAR if entry.file.parent.name == ".gemini" else _BRACES

    def filled(self, value: Any, where: str) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(lambda found: self._value(found, where), value)
        if isinstance(value, list):
            return [self.filled(item, where) for item in value]
        if isinstance(value, dict):
            return {name: self.filled(item, f"{where}.{name}" if where else name) for name, item in value.items()}
        return value

    def _value(self, found: re.Match[str], where: str) -> str:
        variables = self._entry.variables
        if found[1] is None:
            return variables.get(found[2], found[0])
        project = Path(self._entry.project)
        known = {
            "workspaceFolder": str(project),
            "workspaceFolderBasename": project.name,
            "userHome": str(Path.home()),
            "pathSeparator": os.sep,
            "/": os.sep,
            "CLAUDE_PROJECT_DIR": str(project),
        }
        name = _NAME.fullmatch(found[1])
        if found[1].startswith("input:"):
            return self._input(found[1].removeprefix("input:"), where)
        if found[1] in known:
            return known[found[1]]
        if name is None:
            raise self._entry.unusable(f"nothing here can fill in {found[0]} (in {where!r})")
        value = variables.get(name[1], name[2] if name[2] is not None else known.get(name[1]))
        if value is None:
            raise self._entry.unusable(f"{where!r} needs the environment variable {name[1]}, which is not set")
        return value

    def _input(self, name: str, where: str) -> str:
        said = self._entry.inputs.get(name) or Input(id=name)
        if name not in self._given:
            value = self._entry.variables.get(said.variable)
            value = self._ask(said) if value is None else value
            value = said.default if value is None else value
            if value is None:
                about = f" ({said.description})" if said.description else ""
                raise self._entry.unusable(
                    f"{where!r} needs the input {name!r}{about}: set the environment variable {said.variable}"
                )
            self._given[name] = value
        return self._given[name]
