"""A suite to start with: a test for everything that a server offers, with arguments made up from its schemas."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
import yaml

from antiphon.client.client import Client
from antiphon.client.requests import Pages
from antiphon.errors import Refused
from antiphon.types import JsonObject
from antiphon.uri import Template

T = TypeVar("T")

_DEEPEST: Final = 5
_MOST: Final = 1000
"""Parts that arguments may have, and items that a list may: the schemas are the server's."""
_LONGEST: Final = 10_000
"""Characters of a text."""
_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_HEAD: Final = """\
# Tests of {name}. Run them:  antiphon test {file}
# Each one calls something that the server offers, and expects no more than that it works. The arguments are made up:
# put in those that mean something, answer what is asked under inputResponses, and say what should come of it.
"""


async def starting_suite(client: Client, server: Mapping[str, object], *, file: str = "suite.mcp.yaml") -> str:
    """Return a suite as YAML, from what the server of a client offers; ``server`` goes under that key."""
    await client.discover()
    tests = [*await _tools(client), *await _prompts(client), *await _resources(client)]
    name = client.server.name if client.server is not None else "the server"
    parts = [_HEAD.format(name=name, file=file), yaml_of({"server": dict(server)}), "\ntests:\n"]
    for test in tests or [{"name": "says what it can do", "method": "server/discover"}]:
        parts += [f"  {line}\n" for line in yaml_of([test]).splitlines()]
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


async def _tools(client: Client) -> list[JsonObject]:
    tools = await _listed(client.list_tools())
    made = _offer("tools", "name", [tool.name for tool in tools])
    for tool in tools:
        test = {"name": f"{tool.name} works", "tool": tool.name, **_arguments(tool.input_schema)}
        if tool.annotations is not None and tool.annotations.destructive_hint is True:
            test["skip"] = "it says that it destroys something: look at the arguments first"
        made.append(test)
    return made


async def _prompts(client: Client) -> list[JsonObject]:
    prompts = await _listed(client.list_prompts())
    made = _offer("prompts", "name", [prompt.name for prompt in prompts])
    for prompt in prompts:
        given: JsonObject = {argument.name: "text" for argument in prompt.arguments or () if argument.required}
        made.append(
            {"name": f"the prompt {prompt.name} is filled in", "prompt": prompt.name, **_if("arguments", given)}
        )
    return made


async def _resources(client: Client) -> list[JsonObject]:
    resources = await _listed(client.list_resources())
    made = _offer("resources", "uri", [resource.uri for resource in resources])
    made += [{"name": f"{resource.uri} is read", "resource": resource.uri} for resource in resources]
    for template in await _listed(client.list_resource_templates()):
        pattern = template.uri_template
        why = "put a URI that exists in the place of this one"
        made.append({"name": f"{pattern} is read", "skip": why, "resource": _expanded(pattern)})
    return made


def _offer(kind: str, key: str, names: list[str]) -> list[JsonObject]:
    """Return a test of what is offered."""
    if not names:
        return []
    expect = {"result": {f"$.{kind}[*].{key}": names}}
    return [{"name": f"offers its {kind}", "method": f"{kind}/list", "expect": expect}]


async def _listed(pages: Pages[T]) -> list[T]:
    """Return what a server lists; nothing if it does not know the method."""
    try:
        return await pages
    except Refused as refused:
        if refused.code == -32601:
            return []
        raise


def _if(name: str, value: JsonObject) -> JsonObject:
    return {name: value} if value else {}


def _arguments(schema: Any) -> JsonObject:
    steps = iter(range(_MOST))
    return _if("arguments", {name: made_up(part, schema, 0, steps) for name, part in _required(schema)})


def _required(schema: Any) -> Iterator[tuple[str, Any]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required", ()) if isinstance(schema, dict) else ()
    for name in required if isinstance(required, list) else ():
        yield name, (properties or {}).get(name, {})


def made_up(schema: Any, root: Any, depth: int = 0, steps: Iterator[int] | None = None) -> Any:
    """Return a value that a schema allows, as far as simple keywords tell; ``steps`` are used up by its parts."""
    steps = iter(range(_MOST)) if steps is None else steps
    if not isinstance(schema, dict) or depth > _DEEPEST or next(steps, None) is None:
        return "text"
    for name in ("default", "const"):
        if name in schema:
            return schema[name]
    for name in ("examples", "enum"):
        if isinstance(schema.get(name), list) and schema[name]:
            return schema[name][0]
    if isinstance(schema.get("$ref"), str):
        return made_up(_referred(schema["$ref"], root), root, depth + 1, steps)
    for name in ("oneOf", "anyOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return made_up(schema[name][0], root, depth + 1, steps)
    kind = schema.get("type")
    return _of_type(kind[0] if isinstance(kind, list) and kind else kind, schema, root, depth, steps)


def _of_type(kind: object, schema: JsonObject, root: Any, depth: int, steps: Iterator[int]) -> Any:
    match kind:
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "array":
            least = schema.get("minItems")
            count = min(least, _MOST) if isinstance(least, int) else 0
            return [made_up(schema.get("items", {}), root, depth + 1, steps) for _ in range(count)]
        case "object":
            return {name: made_up(part, root, depth + 1, steps) for name, part in _required(schema)}
        case "null":
            return None
        case _:
            return _text(schema)


def _number(schema: JsonObject) -> int | float:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if isinstance(low, int | float):
        return low if "minimum" in schema else low + 1
    if isinstance(high, int | float):
        return min(1, high - 1)
    step = schema.get("multipleOf")
    return step if isinstance(step, int | float) else 1


def _text(schema: JsonObject) -> str:
    made = _FORMATS.get(str(schema.get("format")), "text")
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if isinstance(least, int) and len(made) < least:
        made = made.ljust(min(least, _LONGEST), "x")
    return made[:most] if isinstance(most, int) else made


def _referred(pointer: str, root: Any) -> Any:
    found = root
    for part in pointer.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _expanded(template: str) -> str:
    try:
        read = Template(template)
        return read.expand(**dict.fromkeys(read.variables, "1"))
    except (ValueError, TypeError):
        return template


def yaml_of(value: Any) -> str:
    """Return a value as YAML, as people write it."""
    plain = msgspec.to_builtins(value)
    # default_flow_style=None writes maps and lists of plain values on one line.
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None))
