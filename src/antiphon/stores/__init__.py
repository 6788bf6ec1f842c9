"""State that outlives a request: the interface of a store, and three stores."""

from typing import TYPE_CHECKING

from antiphon.stores.memory import MemoryStore
from antiphon.stores.sqlite import SQLiteStore
from antiphon.stores.store import Store, StoreError

if TYPE_CHECKING:
    from antiphon.stores.redis import RedisStore

__all__ = ["MemoryStore", "RedisStore", "SQLiteStore", "Store", "StoreError"]


def __getattr__(name: str) -> object:
    if name == "RedisStore":
        from antiphon.stores.redis import RedisStore  # only where it is used

        return RedisStore
    raise AttributeError(f"module 'antiphon.stores' has no attribute {name!r}")
