"""Replay safety of a suite's tests: the same call with every round run twice, and on a fresh server."""

from collections.abc import Sequence

from antiphon.errors import AntiphonError
from antiphon.loading import load_fresh
from antiphon.server.dispatch import Service
from antiphon.testing.outcome import Check
from antiphon.testing.safety import check_replay_safety
from antiphon.testing.servers import Connection
from antiphon.testing.suite.attempt import script_of
from antiphon.testing.suite.model import Case
from antiphon.testing.suite.servers import Instance


async def safety(case: Case, instance: Instance, effects: Sequence[str] = (), *, may_fail: bool = False) -> Check:
    """Whether a test's call is safe to replay. It is made several times more, on servers of its own.

    One that has failed in the test ``may_fail`` there, too.
    """
    call = {"method": case.method, "params": case.params}
    try:
        report = await check_replay_safety(
            _target(instance),
            call,
            script_of(case),
            effects=effects,
            max_rounds=case.max_rounds,
            may_fail=may_fail,
        )
    except (AntiphonError, ValueError, TypeError) as fault:
        return Check(name="replay safety", passed=False, problem=f"It cannot be checked: {fault}", place=case.place)
    return Check(name="replay safety", passed=report.ok, problem="" if report.ok else str(report), place=case.place)


def _target(instance: Instance) -> object:
    target = instance.target
    if target.app:
        return lambda: load_fresh(target.app, target.cwd, Service)
    if target.url:
        return Connection(target=target.url, headers=target.headers)
    return Connection(target=instance.command(), env=instance.environment(), cwd=target.cwd)
