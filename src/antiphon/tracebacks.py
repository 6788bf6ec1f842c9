"""Tracebacks for the author of a server: their own frames, without ours above them."""

import importlib
import os
from itertools import dropwhile
from pathlib import Path
from traceback import StackSummary, TracebackException
from typing import Final, TypeVar

Fault = TypeVar("Fault", bound=BaseException)

_OURS: Final = (str(Path(__file__).parent) + os.sep, importlib.__file__, "<frozen importlib")
"""The files of this package and of the import system."""
_STANDARD: Final = str(Path(os.__file__).parent) + os.sep


def from_own_frame(fault: Fault) -> Fault:
    """Cut off the frames above the first one of the author. Keep all if there is none."""
    traceback = fault.__traceback__
    while traceback is not None and _leads(traceback.tb_frame.f_code.co_filename):
        traceback = traceback.tb_next
    return fault if traceback is None else fault.with_traceback(traceback)


def own_traceback(fault: BaseException) -> str:
    """Format the traceback from the author's first frame on, without the frames of this package."""
    report = TracebackException.from_exception(fault)
    _keep_own_frames(report)
    return "".join(report.format() if report.stack else report.format_exception_only())


def _keep_own_frames(report: TracebackException) -> None:
    first = dropwhile(lambda frame: _leads(frame.filename), report.stack)
    report.stack = StackSummary.from_list([frame for frame in first if not frame.filename.startswith(_OURS)])
    for part in report.exceptions or ():
        _keep_own_frames(part)
    for link in ("__cause__", "__context__"):
        earlier: TracebackException | None = getattr(report, link)
        if earlier is not None:
            _keep_own_frames(earlier)
            if not earlier.stack:
                setattr(report, link, None)


def _leads(file: str) -> bool:
    """Whether a file is of this package or of the standard library, which call the author's code."""
    return file.startswith(_OURS) or (file.startswith(_STANDARD) and "site-packages" not in file)
