"""Collects suites for pytest: every ``*.mcp.yaml`` file is a collector, every test in it an item."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.testing.report.text import outcome_rows
from antiphon.testing.suite.document import SuiteBroken
from antiphon.testing.suite.loading import load
from antiphon.testing.suite.model import Case, Era, Outcome, Suite
from antiphon.testing.suite.runner import Running, Settings


class NotPassed(Exception):
    """A test of a suite that did not pass."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.name)
        self.outcome = outcome


class SuiteFile(pytest.File):
    """A suite. Its server is started for the first of its tests, and stopped after the last."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self._runs: list[SuiteRun] = []

    def teardown(self) -> None:
        for run in self._runs:
            run.close()

    def collect(self) -> Iterator["SuiteTest"]:
        try:
            suite = load(self.path)
        except SuiteBroken as fault:
            raise self.CollectError(str(fault)) from None
        eras = suite.eras()
        for era in eras:
            run = SuiteRun(suite, era, update=bool(self.config.getoption("--update-snapshots", default=False)))
            self._runs.append(run)
            for number, case in enumerate(suite.cases):
                name = case.name if len(eras) == 1 else f"{case.name}[{era}]"
                yield SuiteTest.from_parent(self, name=name, run=run, number=number)


class SuiteRun:
    """A suite's server in one era, as long as its tests run."""

    def __init__(self, suite: Suite, era: Era, *, update: bool) -> None:
        self.suite = suite
        self._running = Running(suite, era=era, settings=Settings(update_snapshots=update))
        self._loop: asyncio.Runner | None = None
        self._early: dict[int, Outcome] = {}
        self._done: set[int] = set()

    def outcome(self, number: int) -> Outcome:
        """Run a test and return its outcome. The tests whose captured values it uses are run before it."""
        if self._loop is None:
            self._loop = asyncio.Runner()
            self._loop.run(self._running.__aenter__())
        case: Case = self.suite.cases[number]
        if number in self._early:
            return self._early.pop(number)
        for before in case.needs:
            if before not in self._done:
                self._early[before] = self.outcome(before)
        self._done.add(number)
        return self._loop.run(self._running.run(case))

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self._running.__aexit__(None, None, None))
            finally:
                loop.close()


class SuiteTest(pytest.Item):
    """One test of a suite."""

    def __init__(self, *, run: SuiteRun, number: int, **about: Any) -> None:
        super().__init__(**about)
        self._run = run
        self._number = number
        self.case = run.suite.cases[number]
        self.extra_keyword_matches.update(self.case.tags)

    def runtest(self) -> None:
        outcome = self._run.outcome(self._number)
        if outcome.status == "skipped":
            pytest.skip(outcome.problem)
        if outcome.status != "passed":
            raise NotPassed(outcome)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        fault = excinfo.value
        if isinstance(fault, NotPassed):
            return "\n".join([f"{fault.outcome.place}: {fault.outcome.name}", *map(str, outcome_rows(fault.outcome))])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.place.line - 1, self.name
