"""Run one section of the benchmark alone: measure, report, judge and save."""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from threshold import Figures, Threshold, judge, save


class Measure(Protocol):
    def __call__(self, *, rounds: int, seconds: float, unavailable: dict[str, str]) -> Figures: ...


def run_alone(
    name: str,
    *,
    about: str | None,
    measure: Measure,
    report: Callable[[Figures], None],
    thresholds: Sequence[Threshold],
    usual: tuple[int, float],
    quick: tuple[int, float],
) -> int:
    """Run a section as the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short rounds, and few: to see that it works")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a figure is below its threshold")
    options = parser.parse_args()
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    rounds, seconds = quick if options.quick else usual
    unavailable: dict[str, str] = {}
    section = measure(rounds=rounds, seconds=seconds, unavailable=unavailable)
    facts = {"when": when, "rounds": rounds, "seconds_each": seconds}
    figures: Figures = {"run": facts, name: section, "unavailable": unavailable}
    report(section)
    for what, reason in unavailable.items():
        print(f"not measured: {what}: {reason}")
    below = judge(thresholds, figures)
    save(figures, prefix=f"{name}-")
    return 1 if options.strict and below else 0
