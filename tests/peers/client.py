"""The official Python client in conversation with our server; what it saw goes to standard output as JSON.

`python client.py http URL`, or `python client.py stdio COMMAND...`
"""

import asyncio
import json
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.types import ElicitResult


async def answer(_context, params):
    return ElicitResult(action="accept", content={"confirm": params.message == "Deploy to prod?"})


async def converse(target):
    progress = []
    async with Client(target, elicitation_callback=answer) as client, asyncio.TaskGroup() as background:

        async def on_progress(done, total, _message):
            progress.append([done, total])
            if done == total:
                background.create_task(client.call_tool("hear", {}))

        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        added = await client.call_tool("add", {"a": 2, "b": 3})
        wrong = await client.call_tool("add", {"a": "two"})
        refused = await client.call_tool("refuse", {"why": "because"})
        counted = await client.call_tool("count", {"to": 3}, progress_callback=on_progress)
        asked = [await client.call_tool("deploy", {"env": env}) for env in ("prod", "test")]
        resources = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        contents = [(await client.read_resource(uri)).contents[0] for uri in ("text://greeting", "note://7")]
        prompts = (await client.list_prompts()).prompts
        prompt = await client.get_prompt("summarise", {"topic": "peace"})
        return {
            "revision": client.protocol_version,
            "server": [client.server_info.name, client.server_info.version],
            "instructions": client.instructions,
            "tools": sorted(tools),
            "add": {
                "description": tools["add"].description,
                "required": tools["add"].input_schema["required"],
                "result": added.structured_content,
            },
            "wrong": [wrong.is_error, wrong.content[0].text],
            "refused": [refused.is_error, refused.content[0].text],
            "counted": [counted.content[0].text, progress],
            "asked": [result.content[0].text for result in asked],
            "resources": [resource.uri for resource in resources],
            "templates": [template.uri_template for template in templates],
            "contents": [[content.uri, content.mime_type, content.text] for content in contents],
            "missing": await error_of(client.read_resource("text://nowhere")),
            "unknown": await error_of(client.call_tool("no_such_tool", {})),
            "prompts": [[prompt.name, [argument.name for argument in prompt.arguments]] for prompt in prompts],
            "prompt": [[message.role, message.content.text] for message in prompt.messages],
        }


async def error_of(request):
    try:
        return str(await request)
    except MCPError as error:
        return error.code


def target_of(kind, *rest):
    return rest[0] if kind == "http" else StdioServerParameters(command=rest[0], args=list(rest[1:]))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(converse(target_of(*sys.argv[1:])))))
