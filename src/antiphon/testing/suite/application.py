"""An app: a Server of Antiphon in a file or a module, imported anew for every server that a suite starts."""

from pathlib import Path

from antiphon import home
from antiphon.errors import AntiphonError
from antiphon.server.service import Service


class AppMissing(AntiphonError):
    """There is no such app, or it fails while it is imported; ``log`` is its traceback."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def find_app(text: str, folder: Path) -> Service:
    """The Server that ``file.py``, ``file.py:name`` or ``package.module:name`` leads to, with nothing done to it yet.

    Its own module is run again each time; modules that it imports are not.
    """
    try:
        return home.find(home.read(text, folder), Service, anew=True)
    except home.ServerMissing as fault:
        raise AppMissing(str(fault), fault.log) from None
