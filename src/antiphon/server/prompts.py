"""Prompts: a function becomes messages for a model."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from antiphon.errors import InvalidParams
from antiphon.server.completion import options_of
from antiphon.server.handler import Handler
from antiphon.server.run import Run
from antiphon.server.tools import checked_name, content_blocks, typed
from antiphon.shapes import MISSING, Mismatch, signature_of
from antiphon.types import JsonObject, Message, Prompt, PromptArgument, PromptResult


class PromptEntry:
    """A registered prompt: how it is listed, and how it is filled in."""

    __slots__ = ("_read", "handler", "listed", "name", "options")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        **about: Any,
    ) -> None:
        self.handler = Handler(function)
        self.name = checked_name(name, function)
        signature = signature_of(function, skip=self.handler.hidden)
        self._read = signature.read
        self.options = {item.name: options_of(item.annotation) for item in signature.parameters}
        self.listed = typed(
            Prompt,
            function,
            name=self.name,
            description=description or signature.description,
            arguments=tuple(
                PromptArgument(name=item.name, description=item.description, required=item.default is MISSING)
                for item in signature.parameters
            ),
            **about,
        )

    async def get(self, run: Run) -> Any:
        """Serve prompts/get."""
        arguments = run.call.params.get("arguments")
        if arguments is None:
            arguments = {}
        elif type(arguments) is not dict or not all(type(value) is str for value in arguments.values()):
            raise InvalidParams('prompts/get needs "arguments" to be an object of strings')
        hidden = self.handler.hidden
        try:
            values = self._read({key: value for key, value in arguments.items() if key not in hidden}, lax=True)
        except Mismatch as fault:
            raise InvalidParams(f"Invalid arguments for {self.name}: {fault}") from None
        value = await self.handler.run(run, values)
        return self._result(value)

    def _result(self, value: Any) -> JsonObject:
        stated = value if isinstance(value, PromptResult) else PromptResult(messages=_messages(value, self.name))
        description = stated.description or self.listed.description
        result: JsonObject = {"messages": [_wire(message) for message in stated.messages]}
        if description is not None:
            result["description"] = description
        if stated.meta is not None:
            result["_meta"] = stated.meta
        return result


def _messages(value: object, name: str) -> list[Message]:
    items: Sequence[object] = value if isinstance(value, list | tuple) else (value,)
    made: list[Message] = []
    for item in items:
        if isinstance(item, Message):
            made.append(item)
            continue
        blocks = content_blocks(item)
        if blocks is None:
            raise TypeError(f"Prompt {name!r} returned {type(item).__name__}: expected text, content or Message")
        made += [Message("user", block) for block in blocks]
    return made


def _wire(message: Message) -> JsonObject:
    content = message.content
    blocks = content_blocks(content)
    if blocks is None or len(blocks) != 1:
        raise TypeError("A prompt message has exactly one block of content")
    return {"role": message.role, "content": msgspec.to_builtins(blocks[0])}
