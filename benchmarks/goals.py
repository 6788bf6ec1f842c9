"""What we want of the figures, and whether they are so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from measuring import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure of a run, mostly a ratio of each round, and where we want its median.

    ``bound`` is what a run with `--strict` must keep: no less than nine runs in ten on a busy machine gave.
    """

    title: str
    figure: Callable[[Figures], Sequence[float]]
    at_least: float | None = None
    at_most: float | None = None
    bound: float | None = None

    def judged(self, figures: Figures) -> "Judged":
        try:
            values = list(self.figure(figures))
        except KeyError:  # the section was not measured
            values = []
        if not values:
            return Judged(title=self.title, wanted=self._wanted(), verdict="not measured")
        value = median(values)
        return Judged(
            title=self.title,
            wanted=self._wanted(),
            verdict="met" if self._keeps(value, self.at_most if self.at_least is None else self.at_least) else "below",
            value=value,
            low=min(values),
            high=max(values),
            fails=self.bound is not None and not self._keeps(value, self.bound),
        )

    def _wanted(self) -> str:
        return f"≤ {self.at_most:.3g}" if self.at_least is None else f"≥ {self.at_least:.3g}"

    def _keeps(self, value: float, bound: float | None) -> bool:
        assert bound is not None, f"{self.title} has no goal"
        return value <= bound if self.at_least is None else value >= bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A goal, and what a run says of it."""

    title: str
    wanted: str
    verdict: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    fails: bool = False
