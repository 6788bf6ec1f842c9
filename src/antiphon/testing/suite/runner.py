"""The runner: runs suites against their servers, one after another or several at a time."""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from hashlib import blake2b
from pathlib import Path
from time import perf_counter, time
from typing import Any, Final, Literal, Self

import msgspec

from antiphon.errors import AntiphonError
from antiphon.testing.snapshots import Snapshots
from antiphon.testing.suite.attempt import Seen, attempt, script_of
from antiphon.testing.suite.checks import captured, checks
from antiphon.testing.suite.model import Case, Check, Era, Outcome, Responder, Selection, Status, Suite, Summary
from antiphon.testing.suite.server import SuiteServer, Unstarted, printed
from antiphon.testing.suite.variables import filled

OnOutcome = Callable[[Outcome], None]
EVERYTHING: Final = Selection()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How suites are run."""

    era: Literal["", "auto", "modern", "legacy", "both"] = ""
    """Empty: as each suite says."""
    rotate: int = 0
    """How many instances take turns, each restarted after every leg; 0: one, and it stays."""
    timeout: float | None = None
    """Seconds for every call, whatever the suites say."""
    jobs: int = 1
    fail_fast: bool = False
    update_snapshots: bool = False
    record: Path | None = None
    """A folder for recordings, one file for each suite."""
    replay: Path | None = None
    """A folder of recordings that answer instead of servers."""
    replay_safety: bool = False
    """Whether every round is run twice, and on a fresh server, and compared."""
    effects: Sequence[str] = ()
    """Functions that must not run in several rounds, by name, for ``replay_safety``."""
    ignore: Sequence[str] = ()
    """What ``replay_safety`` does not report: ``socket.connect``, ``notes.py:12``, or all of ``clock``."""

    def __post_init__(self) -> None:
        """Raise ValueError if these do not go together."""
        conflicts = (
            (self.record and self.replay, "--record and --replay exclude each other"),
            (self.effects and not self.replay_safety, "--effect needs --replay-safety"),
            (self.ignore and not self.replay_safety, "--ignore needs --replay-safety"),
            (self.replay_safety and self.jobs > 1, "--replay-safety observes the whole process: it runs with -j 1"),
            (self.replay_safety and self.replay, "--replay-safety needs a server, but --replay starts no server"),
            (self.replay_safety and self.era == "legacy", "--replay-safety has nothing to check in the legacy era"),
        )
        for is_there, conflict in conflicts:
            if is_there:
                raise ValueError(conflict)


class Running:
    """A suite whose server runs: ``async with Running(suite) as running: await running.run(case)``."""

    def __init__(self, suite: Suite, *, era: Era = "auto", settings: Settings | None = None) -> None:
        self.suite = suite
        self.settings = settings or Settings()
        self.values: dict[str, object] = dict(suite.variables)
        """Variables, and what was captured so far."""
        self._snapshots = Snapshots.beside(suite.file, update=self.settings.update_snapshots)
        self.unstarted: Unstarted | None = None
        """Why there is no server."""
        self._has_told = False
        self._era = era
        self._server: SuiteServer | None = None

    async def __aenter__(self) -> Self:
        """Start the server. If that fails, the first test says why, and the others are skipped."""
        try:
            self._server = await self._another().__aenter__()
        except Unstarted as fault:
            self.unstarted = fault
        return self

    async def __aexit__(self, *exc: object) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.__aexit__(*exc)

    async def run(self, case: Case) -> Outcome:
        """Run one test."""
        reason = case.skip or ("The server did not start" if self._has_told else self._unfit(case) if case.era else "")
        if reason:
            return self._outcome(case, "skipped", problem=reason)
        if self.unstarted is not None:
            self._has_told = True
            return self._broken(case, self.unstarted)
        try:
            ready = self._filled(case)
        except KeyError as missing:
            why = f"It needs {missing.args[0]!r}, which no test before it has captured"
            return self._outcome(case, "skipped", problem=why)
        if not case.isolated:
            assert self._server is not None, "a suite runs inside 'async with'"
            return await self._tried(ready, self._server)
        try:
            async with self._another(case.name) as server:
                return await self._tried(ready, server)
        except Unstarted as fault:
            return self._broken(case, fault)

    def _another(self, case: str = "") -> SuiteServer:
        """Return a server for the suite, or for a test that has one of its own."""
        return SuiteServer(
            self.suite.target,
            era=self._era,
            # In the older era a call stays with the instance that it began on.
            rotate=0 if self._era == "legacy" else self.settings.rotate,
            record=self._recording(self.settings.record, case),
            replay=self._recording(self.settings.replay, case),
        )

    def _recording(self, folder: Path | None, case: str) -> Path | None:
        """Return the file of a recording: one for the suite, and one for each test that has a server of its own."""
        if folder is None:
            return None
        parts = [self.suite.name, "" if self._era == "auto" else self._era, case]
        name = "-".join(_slug(part) for part in parts if part)
        if sum(other.isolated and _slug(other.name) == _slug(case) for other in self.suite.cases) > 1:
            # Two tests must not have one file.
            name += f"-{blake2b(case.encode(), digest_size=3).hexdigest()}"
        return folder / f"{name}.json"

    async def _tried(self, case: Case, server: SuiteServer) -> Outcome:
        mark, begun = server.log.mark(), perf_counter()
        # A recording of the older era answers as a modern server does, and its questions still have no keys.
        keyless = self._era == "legacy" or server.revision < "2026"
        seen = await attempt(case, server.client, keyless=keyless)
        found: list[Check] = []
        problem = seen.problem
        try:
            if not problem:
                found += checks(case, seen, self._snapshots)
                if case.capture:
                    found += captured(case, seen, self.values)
        except ValueError as fault:  # snapshots that cannot be read, or what a variable made of a regular expression
            problem = str(fault)
        if self.settings.replay_safety and not problem and self._is_replayed(seen, server):
            found.append(await _replay_safety(case, server, self.settings, may_fail=seen.has_failed))
        if drifts := server.drifts() if self.settings.replay else []:
            problem = "The test does not go as it was recorded. " + "\n".join(drifts)
        if server.stray and server.target.stray == "fail":
            why = printed("The server", server.stray)
            found.append(Check(name="stdout", passed=False, problem=why, place=server.target.place))
            server.stray.clear()
        passed = not problem and not [check for check in found if not check.passed]
        return self._outcome(
            case,
            "broken" if problem else "passed" if passed else "failed",
            era=server.revision,
            checks=tuple(found),
            turns=seen.turns,
            problem=problem,
            log="" if passed else server.log.text(mark),
            seconds=perf_counter() - begun,
        )

    def _is_replayed(self, seen: Seen, server: SuiteServer) -> bool:
        """Return whether a live server has run something again: a call that took one request was run once."""
        return seen.rounds > 1 and server.revision >= "2026" and self.settings.replay is None

    # --- before a test --------------------------------------------------------------------------------------------

    def _unfit(self, case: Case) -> str:
        """Return why a test is not for this run; empty if it is."""
        if self.unstarted is not None:
            return ""
        is_older = self._server is not None and self._server.revision < "2026"
        spoken = self._era if self._era != "auto" else "legacy" if is_older else "modern"
        return "" if case.era == spoken else f"It is for the {case.era} era alone"

    def _filled(self, case: Case) -> Case:
        """Return the test with its variables replaced, and with the timeout of the run."""
        if self.settings.timeout is not None:
            case = msgspec.structs.replace(case, timeout=self.settings.timeout)
        if not case.refers:
            return case
        fill = partial(filled, known=self.values)
        return msgspec.structs.replace(
            case,
            method=str(fill(case.method)),
            params=fill(case.params),
            answers=fill(case.answers),
            needed_answers=tuple(fill(dict.fromkeys(case.needed_answers))),
            responder=None if case.responder is None else _responder(fill, case.responder),
            expect=tuple(msgspec.structs.replace(each, value=fill(each.value)) for each in case.expect),
        )

    def _broken(self, case: Case, fault: Unstarted) -> Outcome:
        return self._outcome(case, "broken", problem=str(fault), log=fault.log)

    def _outcome(self, case: Case, status: Status, **about: Any) -> Outcome:
        about.setdefault("era", "" if self._server is None else self._server.revision)
        return Outcome(name=case.name, suite=self.suite.name, place=case.place, status=status, tags=case.tags, **about)


def _slug(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text).strip("-")


def _responder(fill: Callable[[Any], Any], responder: Responder) -> Responder:
    return Responder(url=str(fill(responder.url)), headers=fill(responder.headers), timeout=responder.timeout)


async def _replay_safety(case: Case, server: SuiteServer, settings: Settings, *, may_fail: bool) -> Check:
    """Check whether a test's call is safe to replay. It is made several times more, on servers of its own."""
    from antiphon.testing.replay_safety import check_replay_safety  # 40 ms, and few runs want it

    call = {"method": case.method, "params": case.params}
    try:
        report = await check_replay_safety(
            server.reached_by(),
            call,
            script_of(case),
            effects=settings.effects,
            ignore=settings.ignore,
            max_rounds=case.max_rounds,
            may_fail=may_fail,
        )
    except (AntiphonError, ValueError, TypeError) as fault:
        return Check(name="replay safety", passed=False, problem=f"It cannot be checked: {fault}", place=case.place)
    return Check(name="replay safety", passed=report.ok, problem="" if report.ok else str(report), place=case.place)


# --- many ---------------------------------------------------------------------------------------------------------


async def run(
    suites: Suite | Sequence[Suite],
    *,
    settings: Settings | None = None,
    selection: Selection = EVERYTHING,
    on_outcome: OnOutcome | None = None,
) -> Summary:
    """Run suites. ``on_outcome`` hears of each outcome as it comes; the summary has them in the order of the files."""
    settings = settings or Settings()
    started, begun = time(), perf_counter()
    batch = _Batch(settings, on_outcome)
    runs = [
        _Run(suite, era, chosen, batch)
        for suite in ([suites] if isinstance(suites, Suite) else suites)
        if (chosen := selection.chosen(suite))
        for era in suite.eras(settings.era)
    ]
    if settings.jobs == 1:
        for each in runs:
            await each.run_all()
    else:
        async with asyncio.TaskGroup() as group:
            for each in runs:
                group.create_task(each.run_all())
    return Summary(
        outcomes=tuple(outcome for each in runs for outcome in each.outcomes()),
        seconds=perf_counter() - begun,
        started=started,
        unstarted=tuple(f"{each.suite.name}: {each.unstarted}" for each in runs if each.unstarted),
    )


class _Batch:
    """What all suites of a run have in common: how many tests run at a time, and when to stop."""

    def __init__(self, settings: Settings, on_outcome: OnOutcome | None) -> None:
        self.settings = settings
        self.gate = asyncio.Semaphore(settings.jobs)
        self.has_failed = False
        self._on_outcome = on_outcome

    @property
    def is_stopped(self) -> bool:
        return self.has_failed and self.settings.fail_fast

    def note(self, outcome: Outcome) -> None:
        if outcome.status in {"failed", "broken"}:
            self.has_failed = True
        if self._on_outcome is not None:
            self._on_outcome(outcome)


class _Run(Running):
    """The chosen tests of one suite in one era."""

    def __init__(self, suite: Suite, era: Era, chosen: list[int], batch: _Batch) -> None:
        super().__init__(suite, era=era, settings=batch.settings)
        self._chosen = chosen
        self._batch = batch
        self._done: dict[int, Outcome] = {}

    def outcomes(self) -> list[Outcome]:
        return [self._done[number] for number in sorted(self._done)]

    async def run_all(self) -> None:
        is_idle = self._batch.is_stopped or all(self.suite.cases[number].skip for number in self._chosen)
        async with nullcontext() if is_idle else self:
            if self.settings.jobs == 1 or self.suite.serial:
                for number in self._chosen:
                    await self._one(number)
            else:
                await self._at_once()

    async def _at_once(self) -> None:
        ready = {number: asyncio.Event() for number in self._chosen}

        async def one(number: int) -> None:
            for before in self.suite.cases[number].needs:
                await ready[before].wait()
            try:
                await self._one(number)
            finally:
                ready[number].set()

        async with asyncio.TaskGroup() as group:
            for number in self._chosen:
                group.create_task(one(number))

    async def _one(self, number: int) -> None:
        case = self.suite.cases[number]
        async with self._batch.gate:
            if self._batch.is_stopped and not self._has_told:
                outcome = self._outcome(case, "skipped", problem=_STOPPED)
            else:
                outcome = await self.run(case)
        self._done[number] = outcome
        self._batch.note(outcome)


_STOPPED: Final = "Not run: a test before it failed, and --fail-fast stops there"
