"""Judge the figures of a run, and save them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A figure of this run, where we would like it, and (where we promise one) the bound it must keep."""

    title: str
    figure: Callable[[Figures], float | None]
    goal: float
    bound: float | None = None
    less_is_better: bool = False

    def line(self, figures: Figures) -> tuple[str, str]:
        value = self.figure(figures)
        verdict = "n/a" if value is None else self._verdict(value)
        shown = "-" if value is None else f"{value:.3g}"
        sign = "<=" if self.less_is_better else ">="
        needs = f"needs {sign} {self.bound:g}" if self.bound is not None else ""
        return verdict, f"{verdict:<6} {self.title:<48} {shown:>8}  {needs:<15} goal {sign} {self.goal:g}"

    def _verdict(self, value: float) -> str:
        if self.bound is None:
            return "goal" if self._keeps(value, self.goal) else "short"
        return "PASS" if self._keeps(value, self.bound) else "BELOW"

    def _keeps(self, value: float, bound: float) -> bool:
        return value <= bound if self.less_is_better else value >= bound


def judge(thresholds: Sequence[Threshold], figures: Figures) -> int:
    """Print a line for each threshold, and return how many are below their bound."""
    print()
    verdicts = [threshold.line(figures) for threshold in thresholds]
    for _, line in verdicts:
        print(line)
    below = sum(verdict == "BELOW" for verdict, _ in verdicts)
    print(f"{sum(verdict == 'PASS' for verdict, _ in verdicts)} PASS, {below} BELOW")
    return below


def save(figures: Figures, *, prefix: str = "") -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(figures, indent=1)
    stamp = figures["run"]["when"].replace(":", "")
    for name in (stamp, "latest"):
        (RESULTS / f"{prefix}{name}.json").write_text(text)
    print(f"saved to {RESULTS / f'{prefix}latest.json'}")
