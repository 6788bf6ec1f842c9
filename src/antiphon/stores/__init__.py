"""What must outlive a request: one interface, and the stores that keep it."""

from antiphon.stores.memory import MemoryStore
from antiphon.stores.sqlite import SQLiteStore
from antiphon.stores.store import Store, StoreError

__all__ = ["MemoryStore", "SQLiteStore", "Store", "StoreError"]
