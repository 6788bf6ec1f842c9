"""Problems: what is wrong with a suite, and where. All of a file's at once."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import msgspec

from antiphon.errors import AntiphonError
from antiphon.testing.suite.outcome import Place


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class SuiteBroken(AntiphonError):
    """A suite cannot be run as it is written; ``problems`` says why, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` where something known is near, and nothing otherwise."""
    by_folded = {name.replace("_", "").replace("-", "").lower(): name for name in known}
    near = get_close_matches(word.replace("_", "").replace("-", "").lower(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""
