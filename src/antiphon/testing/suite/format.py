"""The format: every key of a suite, what it may hold, and what it means. The JSON Schema is made of it."""

import re
from math import isfinite
from typing import Any, Final

import msgspec
from yaml.nodes import MappingNode, Node

from antiphon.testing.json_paths import read_path
from antiphon.testing.suite.checks import OPERATORS, TYPES, pattern
from antiphon.testing.suite.document import FLAG, LIST, MAP, NUMBER, TEXT, Document
from antiphon.testing.suite.grammar import ByKind, ChosenRule, Fixed, Key, Listed, Mapped, Plain, Rule, one_of
from antiphon.testing.suite.variables import NAME
from antiphon.types import JsonObject

# --- plain values -------------------------------------------------------------------------------------------------

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)\s*"


def duration(value: Any) -> float:
    """``500ms``, ``10s``, ``2m``, or a number of seconds."""
    if isinstance(value, str):
        found = re.fullmatch(_DURATION, value)
        if found is None:
            raise ValueError(f"a duration is written 500ms, 10s, 2m, or as a number of seconds, and not {value!r}")
        value = float(found[1]) * _UNITS[found[2]]
    if value <= 0 or not isfinite(value):
        raise ValueError("a duration must be more than nothing")
    return float(value)


def _filled_text(value: Any) -> Any:
    if not value.strip():
        raise ValueError("this must not be empty")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(f"expected a whole number, got {value}")  # noqa: TRY004 -- what a rule hears
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"expected a whole number from 1, got {value}")
    return value


def _regex(value: Any) -> str:
    if "${" not in value:
        pattern(value)
    return str(value)


def _path(value: Any) -> str:
    read_path(value)
    return str(value)


def _variable(name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise ValueError(f"a variable's name has letters, digits, _, - and ., and begins with a letter: not {name!r}")


def _url(value: Any) -> str:
    if not value.startswith(("http://", "https://", "${")):
        raise ValueError(f"a URL begins with http:// or https://, and not like {value!r}")
    return str(value)


ANYTHING: Final = Plain()
TEXT_: Final = Plain(kinds=(TEXT,), check=_filled_text, rules={"minLength": 1})
WORDS: Final = Plain(kinds=(TEXT,))
LOOSE: Final = Plain(kinds=(TEXT, NUMBER, FLAG), check=lambda value: value if isinstance(value, str) else _json(value))
CODE: Final = Plain(kinds=(NUMBER,), check=_whole, rules={"type": "integer"}, named="a whole number")
YES_NO: Final = Plain(kinds=(FLAG,))
NUMERIC: Final = Plain(kinds=(NUMBER,))
OBJECT: Final = Plain(kinds=(MAP,))
URL: Final = Plain(kinds=(TEXT,), check=_url, rules={"pattern": r"^(https?://|\$\{)"}, named="a URL")
COUNT: Final = Plain(kinds=(NUMBER,), check=_count, rules={"type": "integer", "minimum": 1}, named="a whole number")
DURATION: Final = Plain(
    kinds=(TEXT, NUMBER),
    check=duration,
    rules={"pattern": f"^{_DURATION}$", "exclusiveMinimum": 0},
    named="a duration such as 10s",
)
REGEX: Final = Plain(kinds=(TEXT,), check=_regex, rules={"format": "regex"}, named="a regular expression")
PATH: Final = Plain(kinds=(TEXT,), check=_path, rules={"pattern": r"^\$"}, named="a path such as $.id")
STRINGS: Final = Mapped(of=LOOSE)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# --- matchers: a value to be equal to, or a map of operators, which is read as plain JSON ---------------------------


def _matcher_of(node: Node) -> Rule:
    is_matcher = isinstance(node, MappingNode) and any(str(key.value) in OPERATORS for key, _ in node.value)
    return _VALUE_MATCHER if is_matcher else ANYTHING


def _by_path_or_whole(node: Node) -> Rule:
    is_paths = isinstance(node, MappingNode) and all(str(key.value)[:1] == "$" for key, _ in node.value)
    return _BY_PATH if is_paths and node.value else VALUE


def _matcher_or_text(node: Node) -> Rule:
    return MATCHER if isinstance(node, MappingNode) else WORDS


def _matcher(_: Node) -> Rule:
    return MATCHER


_MATCHER: Final[JsonObject] = {"$ref": "#/$defs/matcher"}
VALUE: Final = ChosenRule(of=_matcher_of, said={"anyOf": [_MATCHER, {}]})
PATHS: Final = ChosenRule(of=_by_path_or_whole, said={"$ref": "#/$defs/value"})
TEXT_MATCHER: Final = ChosenRule(of=_matcher_or_text, said={"anyOf": [{"type": "string"}, _MATCHER]})
NUMBER_MATCHER: Final = ByKind({NUMBER: NUMERIC, MAP: ChosenRule(of=_matcher, said=_MATCHER)})
OPERANDS: Final = {
    "equals": Key(ANYTHING, "Equal to this, as it stands."),
    "contains": Key(
        ANYTHING, "A text that has this, or all of these; a list that has this item; a map that has at least this."
    ),
    "matches": Key(REGEX, "A text in which this regular expression is found."),
    "not": Key(ChosenRule(of=lambda _: VALUE, said={"$ref": "#/$defs/value"}), "Not this: a value, or a matcher."),
    "exists": Key(YES_NO, "Whether it is there at all."),
    "type": Key(one_of(*TYPES), "The type that it has."),
    "length": Key(
        ChosenRule(of=lambda _: NUMBER_MATCHER, said={"$ref": "#/$defs/number"}),
        "How long the text, the list or the map is: a number, or a matcher.",
    ),
    "min": Key(NUMERIC, "At least this number."),
    "max": Key(NUMERIC, "At most this number."),
}
MATCHER: Final = Fixed(title="a matcher", keys=OPERANDS, least=1)
_VALUE_MATCHER: Final = msgspec.structs.replace(
    MATCHER, aside=" (a map that is to be equal as it stands goes under 'equals')"
)
_BY_PATH: Final = Mapped(of=VALUE, name=read_path)

# --- expectations -------------------------------------------------------------------------------------------------

ERROR: Final = Fixed(
    title="an error",
    keys={
        "code": Key(CODE, "The JSON-RPC code."),
        "message": Key(TEXT_MATCHER, "The message, or a matcher."),
        "data": Key(PATHS, "What comes with it: a value, a matcher, or paths with matchers."),
    },
)
SNAPSHOT: Final = Fixed(
    title="a snapshot",
    keys={
        "name": Key(TEXT_, "Its name, if it is not the test's."),
        "ignore": Key(Listed(of=PATH), "Paths in the result that may differ from run to run."),
    },
)
QUESTION: Final = ByKind({TEXT: TEXT_, MAP: Mapped(of=TEXT_MATCHER)})

EXPECT: Final = Fixed(
    title="an expectation",
    with_nodes=True,
    keys={
        "text": Key(TEXT_MATCHER, "The text of the result: equal, or {contains:, matches:, not:}."),
        "structured": Key(PATHS, "The structured content: equal, a matcher, or a map from paths to matchers."),
        "result": Key(PATHS, "The whole result, as the server sent it: a map from paths to matchers."),
        "isError": Key(YES_NO, "Whether the tool says that it failed. Not expected unless it is said here."),
        "error": Key(
            ByKind({FLAG: YES_NO, NUMBER: CODE, TEXT: WORDS, MAP: ERROR}),
            "A JSON-RPC error: true, its code, its message, or {code:, message:, data:}.",
        ),
        "schema": Key(
            ByKind({MAP: OBJECT, TEXT: TEXT_}), "A JSON Schema for the structured content, or the file that holds it."
        ),
        "snapshot": Key(
            ByKind({FLAG: YES_NO, TEXT: TEXT_, MAP: SNAPSHOT}), "Equal to what --update-snapshots has kept."
        ),
        "rounds": Key(NUMBER_MATCHER, "How many requests the call took: 1 when nothing was asked."),
        "asked": Key(
            Listed(of=QUESTION), "The keys of all questions in their order; {key: matcher} looks at the message too."
        ),
    },
)

# --- tests --------------------------------------------------------------------------------------------------------

RESPONDER: Final = Fixed(
    title="an inputResponder",
    keys={
        "url": Key(URL, "Where questions are posted as JSON; the answer is JSON as well.", needed=True),
        "headers": Key(STRINGS, "HTTP headers to send."),
        "timeout": Key(DURATION, "How long it may take to answer: 10s."),
    },
)
CAPTURE: Final = Fixed(
    title="a captured value",
    keys={"text": Key(REGEX, "A regular expression: its first group, or all that it finds.", needed=True)},
)
_ANSWER: Final = Fixed(
    title="an answer",
    keys={
        "id": Key(TEXT_, "The question's key.", needed=True),
        "value": Key(ANYTHING, "The answer.", needed=True),
    },
    with_nodes=True,
)


class AnswersRule(msgspec.Struct, frozen=True):
    """Answers by the question's key, or a list of ``{id, value}``. Reads to a map."""

    def read(self, node: Node, page: Document) -> Any:
        count = len(page.problems)
        read = _ANSWER_FORMS.read(node, page)
        if not isinstance(read, list) or len(page.problems) > count:
            return read
        made: dict[str, Any] = {}
        for answer in read:
            key = answer.values["id"]
            if key in made:
                page.wrong(answer.nodes["id"], f"{key!r} is answered twice: give a list of values, one for each time")
            made[key] = answer.values["value"]
        return made

    def schema(self) -> JsonObject:
        return _ANSWER_FORMS.schema()


_ANSWER_FORMS: Final = ByKind({MAP: Mapped(of=ANYTHING), LIST: Listed(of=_ANSWER)})
ANSWERS: Final = AnswersRule()
_ABOUT_ANSWERS: Final = (
    "Answers by the question's key: content to accept; accept, decline or cancel; {sample: text}; {roots: [uri]};"
    " or a list, one for each time it is asked. Or a list of {id:, value:}."
)

_SHARED: Final = {
    "timeout": Key(DURATION, "How long the server may take over a call: 10s, 500ms.", ref="duration"),
    "inputResponses": Key(ANSWERS, _ABOUT_ANSWERS, ref="answers"),
    "inputResponder": Key(RESPONDER, "Who answers what inputResponses does not.", ref="responder"),
    "unusedResponses": Key(
        one_of("fail", "ignore"), "What comes of answers in a test's own inputResponses that it is not asked for."
    ),
    "maxRounds": Key(COUNT, "How often a call may ask."),
    "isolated": Key(YES_NO, "Whether a test gets a server of its own."),
    "tags": Key(ByKind({LIST: Listed(of=TEXT_), TEXT: TEXT_}), "Words to choose tests by, with --tag.", ref="tags"),
}
TEST: Final = Fixed(
    title="a test",
    keys={
        "name": Key(TEXT_, "A sentence: what the server does.", needed=True),
        "tool": Key(TEXT_, "The tool to call."),
        "prompt": Key(TEXT_, "The prompt to get."),
        "resource": Key(TEXT_, "The URI of the resource to read."),
        "method": Key(TEXT_, "Any method of the protocol."),
        "params": Key(OBJECT, "The parameters of the method."),
        "arguments": Key(OBJECT, "The arguments of the tool or the prompt."),
        "expect": Key(EXPECT, "What should come of it.", ref="expect"),
        "capture": Key(
            Mapped(of=ByKind({TEXT: PATH, MAP: CAPTURE}), name=_variable, names={"pattern": r"^[^\W\d][\w.-]*$"}),
            "Values to keep as variables for later tests: a path in the result, or {text: regex}.",
            ref="capture",
        ),
        **_SHARED,
        "skip": Key(ByKind({FLAG: YES_NO, TEXT: TEXT_}), "Leave it out; better with a reason."),
        "era": Key(one_of("modern", "legacy"), "The only era that the test is for."),
    },
    one_of=("tool", "prompt", "resource", "method"),
    needs={"params": "method"},
    with_nodes=True,
)

# --- the whole ----------------------------------------------------------------------------------------------------

AUTH: Final = Fixed(
    title="auth",
    keys={
        "bearer": Key(TEXT_, "A token to send, such as ${env:TOKEN}."),
        "client": Key(TEXT_, "The id of a client that signs in as itself."),
        "secret": Key(TEXT_, "Its secret, such as ${env:SECRET}."),
        "issuer": Key(URL, "The only authorization server that gets the secret."),
        "identity": Key(TEXT_, "The user who calls an app, where no token says so."),
        "scopes": Key(Listed(of=TEXT_), "What that user was granted, or what the client asks for."),
    },
    one_of=("bearer", "client", "identity"),
    needs={"client": "secret", "secret": "issuer", "issuer": "client"},
)
SERVER: Final = Fixed(
    title="a server",
    with_nodes=True,
    keys={
        "command": Key(
            ByKind({LIST: Listed(of=LOOSE, least=1), TEXT: TEXT_}), "The command that starts it on standard streams."
        ),
        "url": Key(URL, "Where it serves HTTP."),
        "app": Key(TEXT_, "A Server of Antiphon, run in this process: package.module:name, or file.py."),
        "config": Key(TEXT_, "An entry of a configuration file: mcp.json:name, or claude-desktop:name."),
        "env": Key(STRINGS, "Variables of its environment, beside those that are there."),
        "cwd": Key(TEXT_, "The folder that it runs in, if it is not that of the suite."),
        "headers": Key(STRINGS, "HTTP headers to send."),
        "auth": Key(
            ByKind({TEXT: one_of("login"), MAP: AUTH}),
            "Who calls: login, which `antiphon login` has kept; a bearer token; a client; an identity.",
        ),
        "era": Key(one_of("auto", "modern", "legacy", "both"), "The era of the protocol to speak."),
        "startup": Key(DURATION, "How long it may take until it answers for the first time: 10s."),
        "stray": Key(one_of("fail", "ignore"), "What comes of lines on standard output that are no messages."),
    },
    one_of=("command", "url", "app", "config"),
    needs={"headers": "url"},
)
SUITE: Final = Fixed(
    title="a suite",
    with_nodes=True,
    keys={
        "name": Key(TEXT_, "What it is called in reports, if not by its file."),
        "server": Key(SERVER, "The server under test.", needed=True),
        "variables": Key(Mapped(of=ANYTHING, name=_variable), "Values for ${name}."),
        "defaults": Key(Fixed(title="the defaults", keys=_SHARED), "What holds for every test that says nothing else."),
        "serial": Key(YES_NO, "Whether the tests keep their order, whatever -j says."),
        "tests": Key(Listed(of=TEST, least=1), "The tests.", needed=True),
    },
)


def schema() -> JsonObject:
    """The format as JSON Schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A suite of tests for an MCP server",
        "description": "What `antiphon test` runs.",
        **SUITE.schema(),
        "$defs": {
            "value": VALUE.schema(),
            "number": NUMBER_MATCHER.schema(),
            "matcher": MATCHER.schema(),
            **{key.ref: key.shape.schema() for key in TEST.keys.values() if key.ref},
        },
    }
