"""The check of replay safety, for a server's file: in a process of its own, since it observes a whole process."""

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.errors import AntiphonError
from antiphon.inspect.calls import InspectedCall
from antiphon.inspect.instance import Spot
from antiphon.types import JsonObject

_PATIENCE: Final = 120.0
_MARK: Final = b"\x1eantiphon replay safety\x1e"
"""What the report follows on standard output, after whatever the server's file prints."""


class CheckFailed(AntiphonError):
    """The check could not be made."""


async def check(call: InspectedCall, spot: Spot) -> JsonObject:
    """Make a call again in a fresh process, with the answers that it got, each round twice; return what was found."""
    answers: JsonObject = {}
    for round_ in call.rounds:
        answers |= round_.answers or {}
    job = {"file": spot.file, "folder": spot.folder, "method": call.method, "params": call.params, "answers": answers}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon.inspect.safety"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=spot.folder,
        env={**os.environ, **spot.env},
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            out, err = await process.communicate(msgspec.json.encode(job))
    except TimeoutError:
        raise CheckFailed(f"The check was not done after {_PATIENCE:.0f} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = out.rpartition(_MARK)[2]
    if process.returncode or not found:
        raise CheckFailed(f"The check could not be made: {err.decode(errors='replace').strip()[-2000:]}")
    report: JsonObject = msgspec.json.decode(found)
    return report


async def _checked(job: JsonObject) -> JsonObject:
    from antiphon.app import Server
    from antiphon.loading import load_fresh
    from antiphon.testing.replay_safety import check_replay_safety

    app = partial(load_fresh, job["file"], Path(job["folder"] or "."), Server)
    call: JsonObject = {"method": job["method"], "params": job["params"]}
    report = await check_replay_safety(app, call, answers=job["answers"] or None)
    findings = [
        {"title": f"{finding.where}: {finding.what}" if finding.where else finding.what, "text": finding.advice}
        for finding in report.findings
    ]
    notes = [{"title": note, "text": ""} for note in report.notes]
    return {"ok": report.ok, "text": str(report), "findings": findings, "notes": notes}


def main() -> None:
    """Read a job on standard input, and write its report on standard output."""
    job: Any = msgspec.json.decode(sys.stdin.buffer.read())
    report = asyncio.run(_checked(job))
    sys.stdout.flush()
    sys.stdout.buffer.write(_MARK + msgspec.json.encode(report))


if __name__ == "__main__":
    main()
