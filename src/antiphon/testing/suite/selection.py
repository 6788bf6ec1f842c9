"""Selection: which tests of a suite are run."""

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from antiphon.testing.suite.model import Case, Suite

_WORD: Final = re.compile(r"\s*(?:([()])|\"([^\"]*)\"|'([^']*)'|([^\s()]+))")

Test = Callable[[str], bool]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """By words in the name, and by tag."""

    expression: str = ""
    """``deploy and not slow``: words that are looked for in names and tags, whatever their case."""
    tags: tuple[str, ...] = ()
    """Any of these."""
    names: frozenset[str] | None = None
    """Exactly these, if not None."""

    def chosen(self, suite: Suite) -> list[int]:
        """Return the numbers of the tests, and of those that they need, in the order of the suite."""
        matches = _read(self.expression) if self.expression else None
        wanted = {number for number, case in enumerate(suite.cases) if self._wants(case, matches)}
        waiting = list(wanted)
        while waiting:
            more = set(suite.cases[waiting.pop()].needs) - wanted
            wanted |= more
            waiting += more
        return sorted(wanted)

    def _wants(self, case: Case, matches: Test | None) -> bool:
        if self.names is not None and case.name not in self.names:
            return False
        if self.tags and not set(self.tags) & set(case.tags):
            return False
        return matches is None or matches("\n".join([case.name, *case.tags]).lower())


def check_expression(text: str) -> None:
    """Raise ValueError unless ``-k`` can read it."""
    _read(text)


def _read(text: str) -> Test:
    words = [(found[1] or "", _first(found[2], found[3], found[4])) for found in _WORD.finditer(text)]
    parser = _Parser(words, text)
    made = parser.any_of()
    if parser.words:
        raise ValueError(f"{text!r} goes on after it has ended")
    return made


def _first(*values: str | None) -> str:
    return next((value for value in values if value is not None), "")


class _Parser:
    """``or`` binds least, then ``and``, then ``not``."""

    def __init__(self, words: Iterable[tuple[str, str]], text: str) -> None:
        self.words = list(words)
        self._text = text

    def any_of(self) -> Test:
        parts = [self._all_of()]
        while self._take("or"):
            parts.append(self._all_of())
        return lambda name: any(part(name) for part in parts)

    def _all_of(self) -> Test:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return lambda name: all(part(name) for part in parts)

    def _one(self) -> Test:
        if self._take("not"):
            other = self._one()
            return lambda name: not other(name)
        if not self.words:
            raise ValueError(f"{self._text!r} ends too early: a word is missing")
        mark, word = self.words.pop(0)
        if mark == "(":
            inner = self.any_of()
            if not self.words or self.words.pop(0)[0] != ")":
                raise ValueError(f"{self._text!r} has a ( that nothing closes")
            return inner
        if mark or word in {"and", "or"}:
            raise ValueError(f"{self._text!r} has {mark or word!r} where a word is missing")
        words = [word]
        while self.words and not self.words[0][0] and self.words[0][1] not in {"and", "or", "not"}:
            words.append(self.words.pop(0)[1])
        wanted = " ".join(words).lower()
        return lambda name: wanted in name

    def _take(self, word: str) -> bool:
        if self.words and self.words[0] == ("", word):
            self.words.pop(0)
            return True
        return False
