"""Lists that come in pages."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from antiphon.errors import PeerBroken
from antiphon.types import JsonObject

MOST = 10_000
"""Pages after which a list has no end."""

T = TypeVar("T")


class Pages(Generic[T]):
    """A list that comes in pages: ``await`` it whole, or iterate over it as the pages come."""

    __slots__ = ("_items",)

    def __init__(self, items: Callable[[], AsyncIterator[T]]) -> None:
        self._items = items

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._all().__await__()

    def __aiter__(self) -> AsyncIterator[T]:
        return self._items()

    async def _all(self) -> list[T]:
        return [item async for item in self._items()]


async def pages(fetch: Callable[[JsonObject], Awaitable[JsonObject]]) -> AsyncIterator[JsonObject]:
    """The pages that ``fetch`` gives for their cursors; PeerBroken when they go round in a circle, or never end."""
    cursor: Any = None
    seen: set[str] = set()
    while len(seen) < MOST:
        page = await fetch({} if cursor is None else {"cursor": cursor})
        yield page
        cursor = page.get("nextCursor")
        if cursor is None:
            return
        if type(cursor) is not str:
            raise PeerBroken("The server gave a cursor that is not a string")
        if cursor in seen:
            raise PeerBroken("The server gives the same pages again and again")
        seen.add(cursor)
    raise PeerBroken(f"The server's list has more than {MOST} pages")
