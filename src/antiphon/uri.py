"""URI templates: expand them (RFC 6570, all four levels), and match URIs against them.

Expansion is section 3 of the RFC. Matching is not specified (section 1.4), so these are our rules:

* ``{id}`` and ``{+path}`` need at least one character; expressions with a lead character (``{/a}``, ``{.ext}``,
  ``{;x}``, ``{?q}``, ``{&q}``, ``{#part}``) may be absent, and then their variables are absent from the result.
* Only ``/``, ``?`` and ``#`` end a ``{id}``, because not all clients encode. An encoded delimiter (``%2F``) never ends
  one. ``{+path}`` and ``{#part}`` take any character.
* Named parameters come in any order; an unknown one, or one repeated without ``*``, does not match.
* If a URI can be read in two ways, the variable further left gets more, but an expression that can be present is.
* A variable that occurs twice must have one value that fits both places.

The time grows with the length of the URI and of the template, not with the number of ways to split the URI.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

__all__ = ["LONGEST_URI", "Template", "Value", "is_template"]

Value: TypeAlias = str | Sequence[str] | Mapping[str, str] | None
"""What a variable can hold: a string, a list, an associative array, or nothing (RFC 6570, section 2.3)."""

LONGEST_URI = 64 * 1024
"""A URI of more bytes than this matches no template."""


class _Operator(NamedTuple):
    lead: str
    separator: str
    stops: str
    named: bool = False
    if_empty: str = ""
    reserved: bool = False


# RFC 6570, appendix A; `stops`, the characters that end the expression in a URI, is ours.
_OPERATORS = {
    "": _Operator("", ",", "/?#"),
    "+": _Operator("", ",", "", reserved=True),
    "#": _Operator("#", ",", "", reserved=True),
    ".": _Operator(".", ".", "/?#"),
    "/": _Operator("/", "/", "?#"),
    ";": _Operator(";", ";", "/?#", named=True),
    "?": _Operator("?", "&", "#", named=True, if_empty="="),
    "&": _Operator("&", "&", "#", named=True, if_empty="="),
}
_RESERVED_OPERATORS = "=,!@|"  # RFC 6570, section 2.2: kept for extensions
_RESERVED = ":/?#[]@!$&'()*+,;="  # RFC 3986, section 2.2

_PIECE = re.compile(r"\{([^{}]*)\}|[^{}]+")
_EXPRESSION = re.compile(r"\{[^{}]*\}")
_NAME = re.compile(r"(?:\w|%[0-9A-Fa-f]{2})(?:\.?(?:\w|%[0-9A-Fa-f]{2}))*", re.ASCII)
_PREFIX = re.compile(r":([1-9][0-9]{0,3})")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TRIPLETS = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_NOT_UNRESERVED = re.compile(r"[^\w.~-]+", re.ASCII)
_NOT_URI = re.compile(r"(?:[^\w.~:/?#\[\]@!$&'()*+,;=%-]|%(?![0-9A-Fa-f]{2}))+", re.ASCII)


def is_template(text: str) -> bool:
    """Whether the text contains an expression. It need not be valid: `Template` raises ValueError if it is not."""
    return _EXPRESSION.search(text) is not None


@dataclass(frozen=True, slots=True)
class Template:
    """A URI template, parsed once.

    >>> notes = Template("note://{folder}/{id}{?lang}")
    >>> notes.expand(folder="to do", id="7")
    'note://to%20do/7'
    >>> notes.match("note://to%20do/7?lang=fr")
    {'folder': 'to do', 'id': '7', 'lang': 'fr'}
    """

    text: str
    variables: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _parts: "tuple[str | _Expression, ...]" = field(init=False, repr=False, compare=False)
    _route: "tuple[str | _Slot, ...]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = tuple(_parsed(self.text))
        names = (v.name for part in parts if isinstance(part, _Expression) for v in part.variables)
        object.__setattr__(self, "variables", tuple(dict.fromkeys(names)))
        object.__setattr__(self, "_parts", parts)
        object.__setattr__(self, "_route", tuple(_routed(parts)))

    def expand(self, /, **values: Value) -> str:
        """Return the URI for these values. Missing values, None and empty lists are left out (RFC 6570, section 3)."""
        return "".join(part if isinstance(part, str) else part.expanded(values) for part in self._parts)

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        """Return the values that expand to this URI, percent-decoded, or None if it does not match.

        A decoded value can hold any character, including slashes and dots: check it before you use it as a path.
        """
        bodies = _bodies(self._route, _tokens(uri)) if _is_text(uri) else None
        if bodies is None:
            return None
        sightings: dict[str, list[tuple[_Variable, str | list[str]]]] = {}
        for slot, body in bodies:
            if (values := slot.read(body)) is None:
                return None
            for variable, value in values:
                sightings.setdefault(variable.name, []).append((variable, value))
        return _settled(sightings)


# --- parsing ---


class _Variable(NamedTuple):
    name: str
    explode: bool = False
    prefix: int | None = None

    def sees(self, value: str | list[str]) -> str | list[str]:
        """Return the part of a complete value that this place of the template shows."""
        if self.explode:
            return value if isinstance(value, list) else [value]
        return (value if isinstance(value, str) else ",".join(value))[: self.prefix]


class _Expression(NamedTuple):
    operator: str
    variables: tuple[_Variable, ...]

    def expanded(self, values: Mapping[str, Value]) -> str:
        operator = _OPERATORS[self.operator]
        pieces = [piece for v in self.variables for piece in _pieces(operator, v, values.get(v.name))]
        return operator.lead + operator.separator.join(pieces) if pieces else ""


def _parsed(text: str) -> Iterator[str | _Expression]:
    if lone := _SURROGATE.search(text):
        raise _fault(text, lone.start(), "a lone surrogate, which no URI can carry,")
    at = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise _fault(text, at, f"unbalanced {text[at]!r}")
        yield _encoded(piece[0], _NOT_URI) if piece[1] is None else _expression(text, at, piece[1])
        at = piece.end()


def _expression(text: str, at: int, body: str) -> _Expression:
    operator = body[:1]
    if operator and operator in _RESERVED_OPERATORS:
        raise _fault(text, at + 1, f"the operator {operator!r} is reserved")
    if operator not in _OPERATORS:
        operator = ""
    if body == operator:
        raise _fault(text, at, "empty expression")
    at += 1 + len(operator)
    variables: list[_Variable] = []
    for spec in body[len(operator) :].split(","):
        variables.append(_variable(text, at, spec))
        at += len(spec) + 1
    return _Expression(operator, tuple(variables))


def _variable(text: str, at: int, spec: str) -> _Variable:
    name = _NAME.match(spec)
    modifier = spec[name.end() :] if name else spec
    if name is None or not (modifier in ("", "*") or modifier.startswith(":")):
        raise _fault(text, at, f"bad variable name {spec!r}")
    if modifier in ("", "*"):
        return _Variable(name[0], explode=modifier == "*")
    prefix = _PREFIX.fullmatch(modifier)
    if prefix is None:
        raise _fault(text, at + name.end(), f"the prefix {modifier!r} is not one of :1 to :9999")
    return _Variable(name[0], prefix=int(prefix[1]))


def _fault(text: str, at: int, problem: str) -> ValueError:
    return ValueError(f"URI template {text!r}: {problem} at position {at}")


# --- expansion ---


def _pieces(operator: _Operator, variable: _Variable, value: Value) -> Iterator[str]:
    name, explode, prefix = variable
    safe = _NOT_URI if operator.reserved else _NOT_UNRESERVED
    if value is None:
        return
    if isinstance(value, str):
        yield _labelled(operator, name, _encoded(value[:prefix], safe))
    elif prefix is not None:
        # RFC 6570, section 2.4.1: a prefix does not apply to composite values.
        raise TypeError(f"the variable {name!r} has a prefix, so it takes a string, not {type(value).__name__}")
    elif isinstance(value, Mapping):
        pairs = [(_member(name, key, safe), _member(name, item, safe)) for key, item in value.items()]
        if explode:
            yield from (_labelled(operator, key, item) if operator.named else f"{key}={item}" for key, item in pairs)
        elif pairs:
            yield _labelled(operator, name, ",".join(f"{key},{item}" for key, item in pairs))
    else:
        items = [_member(name, item, safe) for item in _listed(name, value)]
        if explode:
            yield from (_labelled(operator, name, item) for item in items)
        elif items:
            yield _labelled(operator, name, ",".join(items))


def _listed(name: str, value: object) -> Sequence[object]:
    if not isinstance(value, Sequence):
        raise _unusable(name, value)
    return value  # its members are checked one by one


def _member(name: str, item: object, unsafe: re.Pattern[str]) -> str:
    if not isinstance(item, str):
        raise _unusable(name, item)
    return _encoded(item, unsafe)


def _unusable(name: str, value: object) -> TypeError:
    kinds = "a string, a list of strings or a mapping of strings"
    return TypeError(f"the variable {name!r} takes {kinds}, not {type(value).__name__}")


def _labelled(operator: _Operator, name: str, text: str) -> str:
    if not operator.named:
        return text
    return f"{name}={text}" if text else name + operator.if_empty


def _encoded(text: str, unsafe: re.Pattern[str]) -> str:
    return unsafe.sub(lambda run: "".join(f"%{byte:02X}" for byte in run[0].encode()), text)


# --- matching ---

# A URI is decoded before it is matched, so that each character is one position (a prefix counts characters, RFC 6570,
# section 2.4.1) and `%61` is `a`. Encoded delimiters and bytes that are not UTF-8 become lone surrogates, which no
# valid text contains: they equal themselves and delimit nothing.
_SHIELD = {ord(c): 0xDC00 + ord(c) for c in _RESERVED}
_UNSHIELD = {shield: plain for plain, shield in _SHIELD.items()}
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


def _is_text(uri: str) -> bool:
    if len(uri) > LONGEST_URI:
        return False
    try:
        return uri.isascii() or len(uri.encode()) <= LONGEST_URI
    except UnicodeEncodeError:
        return False


def _tokens(text: str) -> str:
    return _TRIPLETS.sub(_shielded, text) if "%" in text else text


def _shielded(run: re.Match[str]) -> str:
    return bytes.fromhex(run[0].replace("%", "")).decode(errors="surrogateescape").translate(_SHIELD)


class _Slot(NamedTuple):
    """An expression as `match` sees it, or adjacent expressions that act as one."""

    variables: tuple[_Variable, ...]
    leads: str
    separator: str
    named: bool
    stops: str
    segments: int
    """How many times a lead and a body may follow each other."""
    reach: int | None
    """The most characters that the body may have."""
    greedy: bool
    """Whether it takes as much as it can from what precedes it, or as little."""

    def read(self, body: str) -> Iterable[tuple[_Variable, str | list[str]]] | None:
        return self._named(body) if self.named else self._listed(body)

    def _named(self, body: str) -> Iterable[tuple[_Variable, str | list[str]]] | None:
        known = {_tokens(v.name): v for v in self.variables}
        found: dict[_Variable, list[str]] = {}
        for piece in filter(None, body.split(self.separator)):
            name, _, value = piece.partition("=")
            if (variable := known.get(name)) is None or (variable in found and not variable.explode):
                return None
            found.setdefault(variable, []).append(value)
        return [(v, values if v.explode else values[0]) for v, values in found.items()]

    def _listed(self, body: str) -> Iterator[tuple[_Variable, str | list[str]]]:
        items = body.split(self.separator)
        for later, variable in zip(reversed(range(len(self.variables))), self.variables, strict=True):
            share = max(1, len(items) - later) if variable.explode or not later else 1
            mine, items = items[:share], items[share:]
            if mine:
                yield variable, mine if variable.explode else self.separator.join(mine)


def _routed(parts: Sequence[str | _Expression]) -> Iterator[str | _Slot]:
    together: list[_Expression] = []
    for part in parts:
        if together and not (isinstance(part, _Expression) and _continues(together[-1].operator, part.operator)):
            yield _slot(together)
            together = []
        if isinstance(part, str):
            yield _tokens(part)
        else:
            together.append(part)
    if together:
        yield _slot(together)


def _continues(before: str, after: str) -> bool:
    """`{/a}{/b}` expands as `{/a,b}` does, and `{?a}{&b}` as `{?a,b}`."""
    return (before == after and after in (".", "/", ";", "&")) or (before == "?" and after == "&")


def _slot(together: Sequence[_Expression]) -> _Slot:
    operator = _OPERATORS[together[0].operator]
    variables = tuple(v for expression in together for v in expression.variables)
    alone = len(variables) == 1 and not variables[0].explode
    segmented = operator.lead == "/" and not any(v.explode for v in variables)
    return _Slot(
        variables=variables,
        leads="".join(dict.fromkeys(_OPERATORS[e.operator].lead for e in together)),
        separator=operator.separator,
        named=operator.named,
        stops=operator.stops + "/" if segmented else operator.stops,
        segments=len(variables) if segmented else 1,
        reach=variables[0].prefix if alone and not operator.named else None,
        greedy=bool(operator.lead) and not (operator.lead == "." and alone),
    )


class _Positions:
    """Sets of positions in a text: integers whose bit n stands for position n."""

    def __init__(self, tokens: str) -> None:
        self.tokens = tokens
        self._all = (1 << len(tokens)) - 1
        self._marks: dict[str, int] = {"": 0}

    def of(self, characters: str) -> int:
        if (marks := self._marks.get(characters)) is not None:
            return marks
        if len(characters) == 1:
            marks = int("1".join("0" * len(gap) for gap in self.tokens.split(characters))[::-1] or "0", 2)
        else:
            marks = self.of(characters[0]) | self.of(characters[1:])
        self._marks[characters] = marks
        return marks

    def after_literal(self, starts: int, literal: str) -> int:
        if starts & (starts - 1) == 0:
            at = starts.bit_length() - 1
            return starts << len(literal) if self.tokens.startswith(literal, at) else 0
        for character in literal:
            starts = (starts & self.of(character)) << 1
        return starts

    def after_slot(self, starts: int, slot: _Slot) -> int:
        free = self._all & ~self.of(slot.stops)
        reached = starts if slot.leads else 0
        heads = starts
        for _ in range(slot.segments):
            heads = (heads & (self.of(slot.leads) if slot.leads else free)) << 1
            heads = self._run(heads, free, slot.reach if slot.leads or slot.reach is None else slot.reach - 1)
            reached |= heads
        return reached

    def _run(self, starts: int, free: int, reach: int | None) -> int:
        """Return every position that is reached from a start over free characters."""
        if reach is None or reach >= len(self.tokens):
            # The carry of the addition moves along a run of ones, from the first start in it to its end.
            return starts | ((free + (starts & free)) ^ free)
        reached = starts
        while starts and reach:
            starts = (starts & free) << 1
            reached |= starts
            reach -= 1
        return reached

    def begin(self, starts: int, slot: _Slot, end: int) -> int:
        """Return where the slot that ends at `end` begins: `end` itself if it is absent."""
        floor = self._floor(slot.stops, end)
        for _ in range(slot.segments - 1):
            if floor == 0 or self.tokens[floor - 1] not in slot.leads:
                break
            floor = self._floor(slot.stops, floor - 1)
        if slot.reach is not None:
            floor = max(floor, end - slot.reach)
        floor = max(0, floor - 1) if slot.leads else floor
        window = starts & ((1 << end) - 1) >> floor << floor
        if slot.leads:
            window &= self.of(slot.leads)
        if not window:
            return end
        return (window & -window if slot.greedy else window).bit_length() - 1

    def _floor(self, stops: str, end: int) -> int:
        return max((self.tokens.rfind(stop, 0, end) for stop in stops), default=-1) + 1


def _bodies(route: Sequence[str | _Slot], tokens: str) -> list[tuple[_Slot, str]] | None:
    """Return what each slot covers: first find all positions that the parts can reach, then one way back."""
    positions = _Positions(tokens)
    reached = [1]
    for part in route:
        starts = reached[-1]
        ends = positions.after_literal(starts, part) if isinstance(part, str) else positions.after_slot(starts, part)
        if not ends:
            return None
        reached.append(ends)
    end = len(tokens)
    if not reached[-1] >> end & 1:
        return None
    bodies: list[tuple[_Slot, str]] = []
    for part, starts in zip(reversed(route), reversed(reached[:-1]), strict=True):
        if isinstance(part, str):
            end -= len(part)
            continue
        begin = positions.begin(starts, part, end)
        if begin < end:
            bodies.append((part, tokens[begin + bool(part.leads) : end]))
        end = begin
    return bodies[::-1]


def _settled(
    sightings: Mapping[str, Sequence[tuple[_Variable, str | list[str]]]],
) -> dict[str, str | list[str]] | None:
    """Return one value for each variable that fits every place where it occurs, None if there is none."""
    settled: dict[str, str | list[str]] = {}
    for name, seen in sightings.items():
        _, fullest = max(seen, key=lambda one: (one[0].explode, one[0].prefix is None, len(one[1])))
        if any(variable.sees(fullest) != value for variable, value in seen):
            return None
        if _NOT_UTF8.search("".join(fullest)):
            return None
        settled[name] = (
            fullest.translate(_UNSHIELD)
            if isinstance(fullest, str)
            else [item.translate(_UNSHIELD) for item in fullest]
        )
    return settled
