"""What a Context gives to be awaited, and must be."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, NoReturn, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Asking(Coroutine[Any, Any, T_co]):
    """A coroutine that is never taken for its own answer.

    ``if ctx.confirm("Delete everything?"):`` without an ``await`` would be true, since a coroutine is an object. This
    one refuses to be true or false, and the call fails if it ends while one of them was never awaited.
    """

    __slots__ = ("_arguments", "_generator", "_steps", "_unawaited", "excused", "mistaken", "verb")

    def __init__(
        self, verb: str, unawaited: "set[Asking[Any]]", steps: Callable[..., Generator[Any, Any, T_co]], *arguments: Any
    ) -> None:
        self.verb = verb
        self.mistaken = ""
        """How the handler took it for its answer: ``await ...``, as it should have been written."""
        self.excused = False
        """Whether the handler ended, with another question, before it came to this one."""
        self._unawaited = unawaited
        self._steps = steps
        self._arguments = arguments
        unawaited.add(self)

    def __await__(self) -> Generator[Any, Any, T_co]:
        try:
            self._unawaited.remove(self)
        except KeyError:
            raise RuntimeError(f"ctx.{self.verb}(...) was awaited before: ask again to get another answer") from None
        return self._steps(*self._arguments)

    def send(self, value: Any, /) -> Any:
        return self._running().send(value)

    def throw(self, *fault: Any) -> Any:
        return self._running().throw(*fault)

    def close(self) -> None:
        self._unawaited.discard(self)
        generator = getattr(self, "_generator", None)
        if generator is not None:
            generator.close()

    def _running(self) -> Generator[Any, Any, T_co]:
        """What a task drives, which knows nothing of ``__await__``."""
        generator: Generator[Any, Any, T_co] | None = getattr(self, "_generator", None)
        if generator is None:
            generator = self._generator = self.__await__()
        return generator

    def __bool__(self) -> NoReturn:
        self.mistaken = f"await ctx.{self.verb}(...)"
        raise not_awaited(self)

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith(("_", "cr_", "gi_")):  # asyncio looks for the latter
            self.mistaken = f"(await ctx.{self.verb}(...)).{name}"
            raise AttributeError(str(not_awaited(self)))
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"<ctx.{self.verb}(...), not awaited>"


def not_awaited(asking: Asking[Any]) -> TypeError:
    verb = asking.verb
    return TypeError(
        f"ctx.{verb}(...) was not awaited, so it has no effect and no answer: write"
        f" '{asking.mistaken or f'await ctx.{verb}(...)'}' in a coroutine function, and 'ctx.sync.{verb}(...)' in a"
        " plain one"
    )
