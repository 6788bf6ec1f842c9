"""Loading: reads a file to a Suite, or finds everything that is wrong with it."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from yaml.nodes import MappingNode, Node

from antiphon.client.client import Auth
from antiphon.config.servers import ConfiguredServer, open_config
from antiphon.errors import ConfigUnusable
from antiphon.oauth.identity import Identity
from antiphon.shapes import raw_shape
from antiphon.testing.json_paths import read_path
from antiphon.testing.suite.document import (
    FLAG,
    LIST,
    MAP,
    NOTHING,
    NUMBER,
    Document,
    Problem,
    SuiteBroken,
    read_document,
)
from antiphon.testing.suite.format import AUTH, SUITE
from antiphon.testing.suite.grammar import Fields
from antiphon.testing.suite.model import (
    Capture,
    Case,
    Expectation,
    Place,
    Responder,
    Suite,
    Target,
)
from antiphon.testing.suite.variables import Uses, filled, names_in, read_uses, written
from antiphon.types import JsonObject

_DEFAULTS: Final = {
    "timeout": 60.0,
    "inputResponses": {},
    "inputResponder": None,
    "unusedResponses": "fail",
    "maxRounds": 10,
    "isolated": False,
    "tags": (),
}
_NOT_CONFIGURED: Final = ConfiguredServer(source="")
_NOTHING: Final = Uses()
_KINDS: Final = {int: NUMBER, float: NUMBER, bool: FLAG, list: LIST, dict: MAP}
SUFFIXES: Final = (".mcp.yaml", ".mcp.yml")
_OF_OTHERS: Final = frozenset({"node_modules", "__pycache__"})
"""Folders of installed packages: suites in them are not the reader's own."""


def load(path: str | os.PathLike[str], *, variables: Mapping[str, object] | None = None) -> Suite:
    """Read a suite; SuiteBroken with all its problems if it cannot be run.

    ``variables`` go before those that the suite has itself.
    """
    return _read(read_document(Path(path)), variables or {})


def loads(text: str, file: str | os.PathLike[str] = "suite.mcp.yaml", **variables: object) -> Suite:
    """Read a suite from a text, as if it stood in ``file``."""
    return _read(Document(Path(file), text), variables)


def load_all(paths: list[Path], *, variables: Mapping[str, object] | None = None) -> list[Suite]:
    """Read several; SuiteBroken with the problems of all of them."""
    suites: list[Suite] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            suites.append(load(path, variables=variables))
        except SuiteBroken as broken:
            problems += broken.problems
    if problems:
        raise SuiteBroken(problems)
    return suites


def find_suites(places: list[Path]) -> list[Path]:
    """Return the files themselves, and the suites in the folders."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted(_suites_under(place))
        else:
            found.append(place)
    return list(dict.fromkeys(found))


def _suites_under(folder: Path) -> Iterator[Path]:
    """Find suites, but not in hidden folders, virtual environments and installed packages."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        yield from (here / name for name in files if name.endswith(SUFFIXES) and (here / name).is_file())
        folders[:] = [name for name in folders if not _is_of_others(here / name)]


def _is_of_others(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _OF_OTHERS or (folder / "pyvenv.cfg").exists()


def _read(page: Document, given: Mapping[str, object]) -> Suite:
    root = page.root()
    fields: Fields | None = None
    try:
        fields = SUITE.read(root, page)
    except RecursionError:
        page.wrong(root, "This contains itself, or too much")
    is_sound = not page.problems
    uses = read_uses(page, root, given) if "${" in page.text else {}
    made = _Builder(page, fields, given, uses).suite() if fields is not None and is_sound else None
    page.finish()
    assert made is not None, "what is wrong has a reason"
    return made


def _like(own: object, given: object) -> object:
    """Return a text from the command line as the number or the flag that the suite has in its place."""
    if not isinstance(given, str) or not isinstance(own, int | float):
        return given
    try:
        read: object = msgspec.json.decode(given)
    except msgspec.DecodeError:
        return given
    return read if isinstance(read, bool) == isinstance(own, bool) and isinstance(read, int | float) else given


class _Builder:
    """Makes a suite of what the document held."""

    def __init__(self, page: Document, fields: Fields, given: Mapping[str, object], uses: dict[int, Uses]) -> None:
        self._page = page
        self._fields = fields
        self._uses = uses
        self._folder = page.file.absolute().parent
        own: Mapping[str, object] = fields.values.get("variables", {})
        self._variables = self._resolved({**own, **{name: _like(own.get(name), it) for name, it in given.items()}})
        self._defaults: dict[str, Any] = {**_DEFAULTS, **fields.values.get("defaults", {})}
        self._tags = _listed(self._defaults["tags"])

    def suite(self) -> Suite:
        values = self._fields.values
        tests = self._tests(values["tests"])
        self._page.finish()
        return Suite(
            file=self._page.file,
            name=values.get("name") or _name_of(self._page.file),
            target=self._target(values["server"]),
            cases=tuple(tests),
            variables=self._variables,
            names=frozenset([*values.get("variables", {}), *names_in(self._page.text)]),
            serial=values.get("serial", False),
        )

    def _resolved(self, variables: dict[str, Any]) -> JsonObject:
        """Return the variables with their references replaced: to the environment, and to variables above them."""
        made: JsonObject = {}
        for name, value in variables.items():
            try:
                made[name] = filled(value, made)
            except KeyError as missing:
                node = self._fields.nodes.get("variables", self._fields.node)
                where = next((value for key, value in node.value if key.value == name), node)
                self._page.wrong(where, f"The variable {name!r} uses {missing.args[0]!r}, which is not known here")
        return made

    # --- the server -----------------------------------------------------------------------------------------------

    def _target(self, said: Fields) -> Target:
        values: dict[str, Any] = filled(said.values, self._variables)
        self._check_texts(said, values)
        found = self._configured(said, values["config"]) if "config" in values else _NOT_CONFIGURED
        folder = self._folder / (values.get("cwd") or found.cwd or "")
        if "cwd" in values and not folder.is_dir():
            self._page.wrong(said.nodes["cwd"], f"There is no folder {folder}")
        url, auth, identity = values.get("url") or found.url, None, None
        if "auth" in values:
            auth, identity = self._auth(said.nodes["auth"], values["auth"], url=url, is_app="app" in values)
        return Target(
            place=self._page.place(said.node),
            command=self._words(said, values["command"]) if "command" in values else tuple(found.command),
            url=url,
            app=values.get("app", ""),
            env={**found.env, **_written(values.get("env", {}))},
            cwd=folder,
            headers=_written(values.get("headers", {})) or found.headers,
            auth=auth,
            identity=identity,
            **{name: values[name] for name in ("era", "startup", "stray") if name in values},
        )

    def _check_texts(self, said: Fields, values: Mapping[str, Any]) -> None:
        """Raise SuiteBroken if a variable puts something else where a text is needed."""
        places = [(said.nodes[name], values[name]) for name in ("url", "app", "config", "cwd") if name in values]
        if "command" in values and not isinstance(values["command"], list):
            places.append((said.nodes["command"], values["command"]))
        auth = said.nodes.get("auth")
        if isinstance(auth, MappingNode):
            known = self._page.entries(auth)
            places += [(known[name][1], item) for name, item in values["auth"].items() if name != "scopes"]
            places += [(known["scopes"][1], item) for item in values["auth"].get("scopes", ())]
        for node, value in places:
            if not isinstance(value, str):
                # Not the value: it may be a secret.
                self._page.wrong(node, f"Expected a text, and the variable is {_KINDS.get(type(value), NOTHING)}")
        self._page.finish()

    def _words(self, said: Fields, command: Any) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(command) if isinstance(command, str) else map(str, command))
        except ValueError as fault:
            self._page.wrong(said.nodes["command"], f"The command cannot be read: {fault}")
            return ()

    def _configured(self, said: Fields, text: str) -> ConfiguredServer:
        try:
            return open_config(text, folder=self._folder)
        except ConfigUnusable as fault:
            self._page.wrong(said.nodes["config"], str(fault))
            return _NOT_CONFIGURED

    def _auth(self, node: Node, said: Any, *, url: str, is_app: bool) -> tuple[Auth | None, Identity | None]:
        """Return how the client signs in, or who calls an app; note it where that does not fit the server."""
        from antiphon.auth import Bearer, ClientCredentials, File, OAuth  # few suites sign in
        from antiphon.client.signing_in import check_secure

        auth: dict[str, Any] = {"login": ""} if said == "login" else said
        kind = next(name for name in ("login", *AUTH.one_of) if name in auth)
        scopes = auth.get("scopes", ())
        try:
            if kind == "identity" and not is_app:
                raise ValueError("'identity' is for an app in this process: a url takes login, bearer or client")
            if kind != "identity" and not url:
                raise ValueError(f"{kind!r} is for a url: an app takes an identity, and a command has its env")
            if url:
                check_secure(url)
        except ValueError as fault:
            self._page.wrong(node, str(fault))
            return None, None
        match kind:
            case "login":
                return OAuth(keep=File(), visit=None), None
            case "bearer":
                return Bearer(auth["bearer"]), None
            case "client":
                client, secret, issuer = auth["client"], auth["secret"], auth["issuer"]
                return ClientCredentials(client, secret, issuer=issuer, scopes=scopes or None), None
            case _:
                return None, Identity(subject=auth["identity"], scopes=frozenset(scopes))

    # --- tests ----------------------------------------------------------------------------------------------------

    def _tests(self, calls: list[Fields]) -> list[Case]:
        """Return the tests, each with the numbers of those before it whose values it uses."""
        made: list[Case] = []
        first: dict[str, Case] = {}
        captured: dict[str, int] = {}
        for number, said in enumerate(calls):
            case = self._case(said, captured)
            twin = first.setdefault(case.name, case)
            if twin is not case:
                self._page.wrong(
                    said.node, f"Two tests are called {case.name!r}: the first is on line {twin.place.line}"
                )
            captured |= dict.fromkeys(case.capture, number)
            made.append(case)
        return made

    def _case(self, said: Fields, captured: Mapping[str, int]) -> Case:
        own, values = said.values, {**self._defaults, **said.values}
        uses = self._uses.get(id(said.node), _NOTHING)
        method, params = self._call(said)
        answers: JsonObject = own.get("inputResponses", {})
        responder = values["inputResponder"]
        return Case(
            name=values["name"],
            place=self._page.place(said.node),
            method=method,
            params=params,
            answers={**self._defaults["inputResponses"], **answers},
            needed_answers=() if values["unusedResponses"] == "ignore" else tuple(answers),
            responder=None if responder is None else Responder(**responder),
            expect=self._expectations(own["expect"]) if "expect" in own else (),
            capture=self._captures(said) if "capture" in own else {},
            tags=tuple(dict.fromkeys([*self._tags, *_listed(own.get("tags", ()))])),
            skip=_reason(own["skip"]) if "skip" in own else "",
            timeout=values["timeout"],
            max_rounds=values["maxRounds"],
            isolated=values["isolated"],
            era=values.get("era", ""),
            refers=uses.anything,
            needs=tuple(sorted({captured[name] for name in uses.names & captured.keys()})) if captured else (),
        )

    def _call(self, said: Fields) -> tuple[str, JsonObject]:
        values = said.values
        unfit = ""
        if "method" in values:
            unfit = "A method takes 'params'; 'arguments' can be one of them"
            called = values["method"], values.get("params", {})
        elif "resource" in values:
            unfit = "A resource takes no arguments: they are in its URI"
            called = "resources/read", {"uri": values["resource"]}
        else:
            method, kind = ("tools/call", "tool") if "tool" in values else ("prompts/get", "prompt")
            called = method, {"name": values[kind], "arguments": values.get("arguments", {})}
        if unfit and "arguments" in values:
            self._page.wrong(said.nodes["arguments"], unfit)
        return called

    def _expectations(self, said: Fields) -> tuple[Expectation, ...]:
        made: list[Expectation] = []
        for name, value in said.values.items():
            node = said.nodes[name]
            made.append(
                Expectation(
                    name=name,
                    value=self._schema(value, node) if name == "schema" else value,
                    place=self._page.place(said.keys[name]),
                    places=self._places(node) if isinstance(node, MappingNode) else {},
                )
            )
        return tuple(made)

    def _places(self, node: MappingNode) -> dict[str, Place]:
        return {str(key.value): self._page.place(key) for key, _ in node.value}

    def _schema(self, value: Any, node: Node) -> Any:
        """Return a schema, read from its file if it names one."""
        try:
            schema = msgspec.json.decode((self._folder / value).read_bytes()) if isinstance(value, str) else value
            raw_shape(schema)
        except OSError as fault:
            self._page.wrong(node, f"The schema {value} cannot be read: {fault.strerror or fault}")
        except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
            self._page.wrong(node, f"The schema {value} is not JSON: {fault}")
        except (ValueError, TypeError) as fault:
            self._page.wrong(node, f"This is not a JSON Schema: {fault}")
        else:
            return schema
        return {}

    def _captures(self, said: Fields) -> dict[str, Capture]:
        made: dict[str, Capture] = {}
        for key, _ in said.nodes["capture"].value:
            value, place = said.values["capture"][key.value], self._page.place(key)
            if isinstance(value, str):
                made[key.value] = Capture(path=read_path(value), place=place)
            else:
                made[key.value] = Capture(pattern=value["text"], place=place)
        return made


def _written(values: Mapping[str, object]) -> dict[str, str]:
    return {name: written(value) for name, value in values.items()}


def _listed(tags: str | Sequence[str]) -> Sequence[str]:
    return [tags] if isinstance(tags, str) else tags


def _reason(skip: bool | str) -> str:
    return skip if isinstance(skip, str) else "skipped by the suite" if skip else ""


def _name_of(file: Path) -> str:
    name = file.name
    for suffix in (*SUFFIXES, ".yaml", ".yml"):
        name = name.removesuffix(suffix)
    return name
