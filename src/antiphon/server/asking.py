"""An Asking: a question that was made, and that somebody must await."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Asking(Coroutine[Any, Any, T_co]):
    """A coroutine that is never taken for its own answer.

    ``if ctx.confirm("Delete everything?"):`` without an ``await`` would be true, since a coroutine is an object. This
    one refuses to be true or false, and the call fails if it ends while one of its questions was never awaited.
    """

    __slots__ = ("_arguments", "_generator", "_loose", "_steps", "_verb")

    def __init__(
        self, verb: str, loose: "set[Asking[Any]]", steps: Callable[..., Generator[Any, Any, T_co]], *arguments: Any
    ) -> None:
        self._verb = verb
        self._loose = loose
        self._steps = steps
        self._arguments = arguments
        loose.add(self)

    def __await__(self) -> Generator[Any, Any, T_co]:
        try:
            self._loose.remove(self)
        except KeyError:
            raise RuntimeError(f"ctx.{self._verb}(...) was awaited before: ask again to get another answer") from None
        return self._steps(*self._arguments)

    def send(self, value: Any, /) -> Any:
        return self._running().send(value)

    def throw(self, *fault: Any) -> Any:
        return self._running().throw(*fault)

    def close(self) -> None:
        self._loose.discard(self)
        generator = getattr(self, "_generator", None)
        if generator is not None:
            generator.close()

    def _running(self) -> Generator[Any, Any, T_co]:
        """What a task drives, which knows nothing of ``__await__``."""
        generator: Generator[Any, Any, T_co] | None = getattr(self, "_generator", None)
        if generator is None:
            generator = self._generator = self.__await__()
        return generator

    def __bool__(self) -> bool:
        self._loose.discard(self)  # whoever asks for its truth hears of it, and need not hear of it twice
        raise not_awaited(self)

    def __repr__(self) -> str:
        return f"<ctx.{self._verb}(...), not awaited>"


def not_awaited(asking: Asking[Any]) -> TypeError:
    verb = asking._verb
    return TypeError(
        f"ctx.{verb}(...) was not awaited, so nobody was asked: write 'await ctx.{verb}(...)' in a coroutine function,"
        f" and 'ctx.sync.{verb}(...)' in a plain one"
    )
