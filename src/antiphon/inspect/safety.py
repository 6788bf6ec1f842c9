"""The check of replay safety, for a server's file: by ``antiphon test``, in a process that it observes as a whole."""

import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from antiphon.errors import AntiphonError
from antiphon.inspect.calls import InspectedCall
from antiphon.inspect.exports import suite
from antiphon.inspect.instance import Spot
from antiphon.types import JsonObject

_PATIENCE: Final = 120.0


class CheckFailed(AntiphonError):
    """The check could not be made."""


async def check(call: InspectedCall, spot: Spot) -> JsonObject:
    """Make a call again with the answers that it got, each round twice; return whether that is safe, and the report.

    ``ok`` is None if the call failed: what it would have run after that is not known.
    """
    with TemporaryDirectory() as folder:
        test = await _tested(_written(folder, suite(call, spot)), Path(folder, "report.json"), spot)
    checks = {each["name"]: each for each in test["checks"]}
    safety = checks.pop("replay safety", None)
    told = " ".join(filter(None, [test["problem"], *(each.get("problem", "") for each in checks.values())]))
    unknown = f"The call was not run to its end, so its replay safety is unknown. {told}" if told else ""
    if safety is not None and not safety["passed"]:
        return {"ok": False, "text": "\n".join(filter(None, [safety.get("problem", ""), unknown]))}
    if safety is not None:
        return {"ok": None if unknown else True, "text": unknown}
    if not any(round_.questions for round_ in call.rounds) and not told:
        return {"ok": True, "text": "Nothing was asked, so nothing runs again."}
    raise CheckFailed(f"The check could not be made: {told}")


async def _tested(file: str, report: Path, spot: Spot) -> JsonObject:
    """Run the only test of a suite, and return what is reported of it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", "test", file, "--replay-safety", "--report", f"json={report}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=spot.folder,
        env={**os.environ, **spot.env},
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            _, err = await process.communicate()
    except TimeoutError:
        raise CheckFailed(f"The check was not done after {_PATIENCE:.0f} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if (test := _read(report)) is None:
        raise CheckFailed(f"The check could not be made: {err.decode(errors='replace').strip()[-2000:]}")
    return test


def _written(folder: str, text: str) -> str:
    file = Path(folder, "call.mcp.yaml")
    file.write_text(text, encoding="utf-8")
    return str(file)


def _read(report: Path) -> JsonObject | None:
    found: Any = msgspec.json.decode(report.read_bytes()) if report.exists() else {"tests": []}
    return next(iter(found["tests"]), None)
