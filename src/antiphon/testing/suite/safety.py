"""Replay safety of a suite's tests: the same call with every round run twice, and on a fresh server."""

import os

from antiphon.errors import AntiphonError
from antiphon.testing.safety import check_replay_safety
from antiphon.testing.suite.application import find_app
from antiphon.testing.suite.attempt import script_of
from antiphon.testing.suite.outcome import Check
from antiphon.testing.suite.suite import Case, Target


async def safety(case: Case, target: Target) -> Check:
    """Whether a test's call is safe to replay. It is made several times more, on servers of its own."""
    call = {"method": case.method, "params": case.params}
    try:
        report = await check_replay_safety(_app(target), call, script_of(case), max_rounds=case.max_rounds)
    except (AntiphonError, ValueError) as fault:
        return Check(name="replay safety", passed=False, problem=f"It cannot be checked: {fault}", place=case.place)
    return Check(name="replay safety", passed=report.ok, problem="" if report.ok else str(report), place=case.place)


def _app(target: Target) -> object:
    if target.app:
        return lambda: find_app(target.app, target.cwd)
    if target.url:
        return target.url
    if os.name != "posix":
        return list(target.command)
    # The check takes a command and nothing else: the shell knows of folders and variables.
    variables = [f"{name}={value}" for name, value in target.env.items()]
    return ["/bin/sh", "-c", 'cd "$0" && exec env "$@"', str(target.cwd), *variables, *target.command]
