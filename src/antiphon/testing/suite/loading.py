"""Loading: reads a file to a Suite, or finds everything that is wrong with it."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from antiphon.config.servers import ConfiguredServer, open_config
from antiphon.errors import ConfigUnusable
from antiphon.shapes import raw_shape
from antiphon.testing.json_paths import read_path
from antiphon.testing.suite.document import (
    Document,
    Problem,
    SuiteBroken,
    filled,
    missing_environment,
    names_in,
    nearest,
    read_document,
)
from antiphon.testing.suite.format import DEFAULT_STARTUP, DEFAULT_TIMEOUT, SUITE
from antiphon.testing.suite.grammar import WRONG, Fields
from antiphon.testing.suite.model import (
    CALLERS,
    Capture,
    Case,
    Credentials,
    Expectation,
    Place,
    Responder,
    Suite,
    Target,
)
from antiphon.types import JsonObject

MAX_ROUNDS: Final = 10
SUFFIXES: Final = (".mcp.yaml", ".mcp.yml")
_OF_OTHERS: Final = frozenset({"node_modules", "__pycache__"})
"""Folders of installed packages: suites in them are not the reader's own."""


def load(path: str | os.PathLike[str], *, variables: Mapping[str, object] | None = None) -> Suite:
    """Read a suite; SuiteBroken with all its problems if it cannot be run.

    ``variables`` go before those that the suite has itself.
    """
    page = read_document(Path(path))
    return _read(page, variables or {})


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
    if root is None and not page.problems:
        page.problems.append(Problem(Place(file=page.file, line=1, column=1), "The suite is empty"))
    page.finish()
    assert root is not None
    fields = SUITE.read(root, page)
    references = References(page, root, given) if "${" in page.text else None
    made = None if fields is WRONG else _Builder(page, fields, given, references).suite()
    page.finish()
    assert made is not None, "what is wrong has a reason"
    return made


# --- references ---------------------------------------------------------------------------------------------------


class Uses(NamedTuple):
    """What one call refers to."""

    names: set[str]
    anything: bool
    """Whether there is any reference at all, to the environment for instance."""


class References:
    """What each call of a suite refers to, by its number. An unknown variable is a problem of the document."""

    def __init__(self, page: Document, root: Node, given: Iterable[str]) -> None:
        self.used: dict[str, list[Uses]] = {"setup": [], "tests": []}
        self._page = page
        self._known = set(given)
        if isinstance(root, MappingNode):
            self._read(root)

    def _read(self, root: MappingNode) -> None:
        parts = {key.value: value for key, value in root.value if isinstance(key, ScalarNode)}
        self._known |= _keys(parts.get("variables"))
        self._uses(parts.get("server"))
        shared = self._uses(parts.get("defaults"))
        for kind in self.used:
            calls = parts.get(kind)
            for call in calls.value if isinstance(calls, SequenceNode) else ():
                own = self._uses(call)
                self.used[kind].append(Uses(own.names | shared.names, own.anything or shared.anything))
                self._known |= _captured(call)

    def _uses(self, node: Node | None) -> Uses:
        """Return what a part of the document refers to."""
        found: set[str] = set()
        scalars = list(_scalars(node, set()))
        for scalar in scalars:
            for name in names_in(scalar.value):
                found.add(name)
                if name not in self._known:
                    hint = nearest(name, self._known) or "; variables come from 'variables' and from 'capture' above"
                    self._page.wrong(scalar, f"There is no variable {name!r} here{hint}")
            for name in missing_environment(scalar.value):
                self._page.wrong(
                    scalar, f"The environment has no {name}; ${{env:{name}:-something}} says what holds without it"
                )
        return Uses(found, bool(scalars))


def _scalars(node: Node | None, seen: set[int]) -> Iterator[ScalarNode]:
    if node is None or id(node) in seen:
        return
    if isinstance(node, ScalarNode):
        if "${" in node.value:
            yield node
        return
    seen.add(id(node))
    for item in node.value:
        for below in item if isinstance(item, tuple) else (item,):
            yield from _scalars(below, seen)


def _keys(node: Node | None) -> set[str]:
    return (
        {key.value for key, _ in node.value if isinstance(key, ScalarNode)} if isinstance(node, MappingNode) else set()
    )


def _captured(call: Node) -> set[str]:
    if not isinstance(call, MappingNode):
        return set()
    return set().union(*(_keys(value) for key, value in call.value if key.value == "capture"))


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

    def __init__(
        self, page: Document, fields: Fields, given: Mapping[str, object], references: References | None
    ) -> None:
        self._page = page
        self._fields = fields
        self._references = references
        self._folder = page.file.absolute().parent
        own: Mapping[str, object] = fields.values.get("variables", {})
        self._variables = self._resolved({**own, **{name: _like(own.get(name), it) for name, it in given.items()}})
        defaults: Fields | None = fields.values.get("defaults")
        self._defaults: dict[str, Any] = {} if defaults is None else defaults.values

    def suite(self) -> Suite:
        values = self._fields.values
        cases = [self._case(each, "tests", number) for number, each in enumerate(values["tests"])]
        setup = [self._case(each, "setup", number) for number, each in enumerate(values.get("setup", ()))]
        self._refuse_twins(cases)
        self._page.finish()
        return Suite(
            file=self._page.file,
            name=values.get("name") or _name_of(self._page.file),
            target=self._target(values["server"]),
            cases=_linked(cases, self._references),
            setup=tuple(setup),
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
                node = self._fields.nodes.get("variables")
                where = node if node is None else _value_in(node, name)
                if where is not None:
                    self._page.wrong(where, f"The variable {name!r} uses {missing.args[0]!r}, which is not known here")
        return made

    def _refuse_twins(self, cases: list[Case]) -> None:
        first: dict[str, Case] = {}
        for case in cases:
            if case.name in first:
                line = first[case.name].place.line
                self._page.problems.append(
                    Problem(case.place, f"Two tests are called {case.name!r}: the first is on line {line}")
                )
            first.setdefault(case.name, case)

    # --- the server -----------------------------------------------------------------------------------------------

    def _target(self, said: Fields) -> Target:
        values: dict[str, Any] = filled(said.values, self._variables)
        command = values.get("command", ())
        folder = self._folder / values["cwd"] if "cwd" in values else self._folder
        if "cwd" in values and not folder.is_dir():
            self._page.wrong(said.nodes["cwd"], f"There is no folder {folder}")
        try:
            words = tuple(shlex.split(command)) if isinstance(command, str) else tuple(map(str, command))
        except ValueError as fault:
            self._page.wrong(said.nodes["command"], f"The command cannot be read: {fault}")
            words = ()
        found = self._configured(said, values["config"]) if "config" in values else ConfiguredServer(source="")
        if found.cwd is not None and "cwd" not in values:
            folder = Path(found.cwd)
        return Target(
            place=self._page.place(said.node),
            command=words or tuple(found.command),
            url=values.get("url") or found.url,
            app=values.get("app", ""),
            env={**found.env, **values.get("env", {})},
            cwd=folder,
            headers=values.get("headers") or found.headers,
            auth=None if "auth" not in said.values else self._credentials(said, values, found),
            era=values.get("era", "auto"),
            startup=values.get("startup", DEFAULT_STARTUP),
            stray=values.get("stray", "fail"),
        )

    def _configured(self, said: Fields, text: str) -> ConfiguredServer:
        try:
            return open_config(text, folder=self._folder)
        except ConfigUnusable as fault:
            self._page.wrong(said.nodes["config"], str(fault))
            return ConfiguredServer(source="")

    def _credentials(self, said: Fields, values: dict[str, Any], found: ConfiguredServer) -> Credentials | None:
        """Return who calls the server; note it where that does not fit the server."""
        from antiphon.client.signing_in import check_secure  # few suites sign in

        node, auth = said.nodes["auth"], said.values["auth"]
        told: dict[str, Any] = filled(auth.values, self._variables) if isinstance(auth, Fields) else {"login": ""}
        kind = next(filter(told.__contains__, CALLERS))
        try:
            if kind == "identity" and "app" not in values:
                raise ValueError("'identity' is for an app in this process: a url takes login, bearer or client")
            url = values.get("url") or found.url
            if kind != "identity" and not url:
                raise ValueError(f"{kind!r} is for a url: an app takes an identity, and a command has its env")
            if url:
                check_secure(url)
        except ValueError as fault:
            self._page.wrong(node, str(fault))
            return None
        return Credentials(
            kind=kind,
            name=told.get("client") or told.get("identity", ""),
            secret=told.get("secret") or told.get("bearer", ""),
            issuer=told.get("issuer", ""),
            scopes=tuple(told.get("scopes", ())),
        )

    # --- tests ----------------------------------------------------------------------------------------------------

    def _case(self, said: Fields, kind: str, number: int) -> Case:
        values, defaults = said.values, self._defaults
        method, params = self._call(said)
        responder = values.get("inputResponder") or defaults.get("inputResponder")
        expect = values.get("expect")
        may_be_unused = values.get("unusedResponses", defaults.get("unusedResponses")) == "ignore"
        return Case(
            name=values.get("name") or f"setup {number + 1}: {method}",
            place=self._page.place(said.node),
            method=method,
            params=params,
            answers={**defaults.get("inputResponses", {}), **values.get("inputResponses", {})},
            needed_answers=() if may_be_unused else tuple(values.get("inputResponses", ())),
            responder=None if responder is None else Responder(**responder.values),
            expect=() if expect is None else self._expectations(expect),
            capture=self._captures(said) if "capture" in values else {},
            tags=tuple(dict.fromkeys([*_tags(defaults), *_tags(values)])),
            skip=_reason(values["skip"]) if "skip" in values else "",
            timeout=values.get("timeout") or defaults.get("timeout") or DEFAULT_TIMEOUT,
            max_rounds=values.get("maxRounds") or defaults.get("maxRounds") or MAX_ROUNDS,
            isolated=values.get("isolated", defaults.get("isolated", False)),
            era=values.get("era", ""),
            refers=self._references is not None and self._references.used[kind][number].anything,
        )

    def _call(self, said: Fields) -> tuple[str, JsonObject]:
        values = said.values
        if "method" in values:
            if "arguments" in values:
                self._page.wrong(said.nodes["arguments"], "A method takes 'params'; 'arguments' can be one of them")
            return values["method"], values.get("params", {})
        if "resource" in values:
            if "arguments" in values:
                self._page.wrong(said.nodes["arguments"], "A resource takes no arguments: they are in its URI")
            return "resources/read", {"uri": values["resource"]}
        method, kind = ("tools/call", "tool") if "tool" in values else ("prompts/get", "prompt")
        return method, {"name": values[kind], "arguments": values.get("arguments", {})}

    def _expectations(self, said: Fields) -> tuple[Expectation, ...]:
        made: list[Expectation] = []
        for name, value in said.values.items():
            node = said.nodes[name]
            if name == "schema":
                value = self._schema(value, node)  # noqa: PLW2901 -- the file's content stands for its name
            made.append(
                Expectation(
                    name=name,
                    value=value.values if isinstance(value, Fields) else value,
                    place=self._page.place(said.keys[name]),
                    places=self._places(node) if isinstance(node, MappingNode) else {},
                )
            )
        return tuple(made)

    def _places(self, node: MappingNode) -> dict[str, Place]:
        return {str(key.value): self._page.place(key) for key, _ in node.value}

    def _schema(self, value: Any, node: Node) -> Any:
        """Return a schema, read from its file if it names one."""
        if isinstance(value, str):
            file = self._folder / value
            try:
                value = msgspec.json.decode(file.read_bytes())
            except OSError as fault:
                self._page.wrong(node, f"The schema {value} cannot be read: {fault.strerror or fault}")
                return {}
            except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
                self._page.wrong(node, f"The schema {value} is not JSON: {fault}")
                return {}
        try:
            raw_shape(value)
        except (ValueError, TypeError) as fault:
            self._page.wrong(node, f"This is not a JSON Schema: {fault}")
        return value

    def _captures(self, said: Fields) -> dict[str, Capture]:
        made: dict[str, Capture] = {}
        for key, _ in said.nodes["capture"].value:
            value, place = said.values["capture"][key.value], self._page.place(key)
            source: Any
            ((source, where),) = [("result", value)] if isinstance(value, str) else value.values.items()
            made[key.value] = (
                Capture(source="text", pattern=where, place=place)
                if source == "text"
                else Capture(source=source, path=read_path(where), place=place)
            )
        return made


def _linked(cases: list[Case], references: References | None) -> tuple[Case, ...]:
    """Return the cases, each with the numbers of those before it whose values it uses."""
    if references is None:
        return tuple(cases)
    latest: dict[str, int] = {}
    made: list[Case] = []
    for number, case in enumerate(cases):
        needs = sorted({latest[name] for name in references.used["tests"][number].names if name in latest})
        made.append(msgspec.structs.replace(case, needs=tuple(needs)))
        latest |= dict.fromkeys(case.capture, number)
    return tuple(made)


def _tags(values: Mapping[str, Any]) -> list[str]:
    tags: str | list[str] = values.get("tags", [])
    return [tags] if isinstance(tags, str) else tags


def _reason(skip: bool | str) -> str:
    return skip if isinstance(skip, str) else "skipped by the suite" if skip else ""


def _value_in(node: Node, name: str) -> Node | None:
    if not isinstance(node, MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _name_of(file: Path) -> str:
    name = file.name
    for suffix in (*SUFFIXES, ".yaml", ".yml"):
        name = name.removesuffix(suffix)
    return name
