"""The store that a command works on: a Redis URL, or the path of an SQLite file."""

from pathlib import Path
from typing import Final

import click

from antiphon.stores import RedisStore, SQLiteStore
from antiphon.stores.store import Store

store_option: Final = click.option(
    "--store",
    metavar="STORE",
    envvar="ANTIPHON_STORE",
    help="The store of an inbox: redis://HOST:PORT/0, or the path of an SQLite file. Default: ANTIPHON_STORE.",
)


def open_store(address: str) -> Store:
    """Return the store; ValueError if the address is of none."""
    scheme, separator, path = address.partition("://")
    if scheme in {"redis", "rediss", "unix"}:
        return RedisStore(address)
    if separator and scheme != "sqlite":
        raise ValueError(f"{address!r} is no store: give redis://HOST:PORT/0, or the path of an SQLite file")
    file = Path(path.removeprefix("/") if separator else address)
    if not file.parent.is_dir():
        raise ValueError(f"There is no folder {str(file.parent)!r} for the store {address!r}")
    return SQLiteStore(file)
