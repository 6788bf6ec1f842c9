"""The client that the official conformance suite runs.

The suite runs it:  MCP_CONFORMANCE_SCENARIO=tools_call python examples/conformance_client.py http://localhost:8000/mcp
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from antiphon import Accepted, Client, Elicitation, Root, Tool
from antiphon.auth import ClientCredentials, Enterprise, OAuth, Workload

CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2026-07-28")
DOCUMENT = "https://conformance-test.local/client-metadata.json"
VALUES = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def agree(question: Elicitation) -> Accepted[dict[str, Any]]:
    """Accept every question: with defaults where there are some, else with a value of the right type."""
    fields = question.schema.get("properties", {})
    return Accepted({name: value_for(field) for name, field in fields.items() if "default" not in field})


def value_for(schema: dict[str, Any]) -> Any:
    return schema["enum"][0] if "enum" in schema else VALUES.get(schema.get("type", ""), "text")


async def call(client: Client, tool: Tool) -> None:
    fields = tool.input_schema.get("properties", {})
    await client.call_tool(tool.name, {name: value_for(field) for name, field in fields.items()})


async def call_every_tool(client: Client) -> None:
    async for tool in client.list_tools():
        await call(client, tool)


async def call_first_tool(client: Client) -> None:
    await call(client, (await client.list_tools())[0])


async def use_everything(client: Client) -> None:
    await call_every_tool(client)
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)


async def call_as_told(client: Client) -> None:
    await client.list_tools()
    for told in CONTEXT["toolCalls"]:
        await client.call_tool(told["name"], told["arguments"])


async def echo_a_schema(client: Client) -> None:
    schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
    await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


SCENARIOS: dict[str, Callable[[Client], Awaitable[object]]] = {
    **dict.fromkeys(["initialize", "json-schema-ref-no-deref"], Client.list_tools),
    **dict.fromkeys(["request-metadata", "sep-2322-client-request-state"], call_every_tool),
    "http-invalid-tool-headers": call_every_tool,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "json-schema-2020-12-preservation": echo_a_schema,
}


def visit(url: str, _: str) -> str:
    """Visit a sign-in page as a browser whose user agrees at once, and return where it leads to."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    connection.request("GET", url)
    return connection.getresponse().headers["location"] or ""


def auth_for(scenario: str) -> OAuth | ClientCredentials | Workload | Enterprise | None:
    """The way to sign in that a scenario is about. The suite's context names no issuer."""
    own = {name: CONTEXT[name] for name in ("client_id", "client_secret", "idp_client_id") if name in CONTEXT}
    match scenario.removeprefix("auth/"):
        case "client-credentials-basic":
            return ClientCredentials(**own, issuer=None)
        case "client-credentials-jwt":
            return ClientCredentials(**own, key=CONTEXT["private_key_pem"], issuer=None)
        case "wif-jwt-bearer":
            return Workload(CONTEXT["valid_jwt"], **own, issuer=None)
        case "enterprise-managed-authorization":
            return Enterprise(idp=CONTEXT["idp_token_endpoint"], id_token=CONTEXT["idp_id_token"], issuer=None, **own)
        case "pre-registration":
            return OAuth(visit=visit, **own, issuer=CONTEXT["issuer"])
        case _:
            return OAuth(visit=visit, client_id=DOCUMENT) if scenario.startswith("auth/") else None


async def main(url: str) -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    # Some of the suite's old servers would answer a modern request as well, and miss the handshake.
    era = "2025-03-26" if scenario.startswith("auth/2025-03-26") else "legacy" if REVISION < "2026" else "auto"
    async with Client(
        url,
        elicit=agree,
        elicit_url=agree,
        sample=lambda _: "I see.",
        roots=[Root("file:///tmp")],
        timeout=20,
        auth=auth_for(scenario),
        era=era,
    ) as client:
        await SCENARIOS.get(scenario, call_first_tool)(client)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
