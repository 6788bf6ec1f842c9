"""A server with one of everything, for the official conformance suite.

Run it:  python examples/everything.py --port 8000
"""

import argparse
import asyncio
from base64 import b64decode
from typing import Annotated

from antiphon import (
    Audio,
    Contents,
    Context,
    EmbeddedResource,
    Header,
    Image,
    InputRequired,
    Message,
    Server,
    Text,
    ToolError,
    ask,
    input_required,
)

app = Server("everything", version="1.0.0", instructions="Every feature once, for tests.")

PIXEL = Image(
    b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
)
BEEP = Audio(b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="))
EMBEDDED = EmbeddedResource(
    Contents("test://embedded-resource", text="This is an embedded resource content.", mime_type="text/plain")
)

# --- tools ------------------------------------------------------------------------------------------------------------


@app.tool
def test_simple_text() -> str:
    """Returns text."""
    return "This is a simple text response for testing."


@app.tool
def test_image_content() -> Image:
    """Returns a picture of one pixel."""
    return PIXEL


@app.tool
def test_audio_content() -> Audio:
    """Returns a very short sound."""
    return BEEP


@app.tool
def test_embedded_resource() -> EmbeddedResource:
    """Returns a resource's contents."""
    return EMBEDDED


@app.tool
def test_multiple_content_types() -> list[Text | Image | EmbeddedResource]:
    """Returns text, a picture and a resource."""
    return [Text("Multiple content types test:"), PIXEL, EMBEDDED]


@app.tool
def test_error_handling() -> str:
    """Always fails, in a way that a model can read."""
    raise ToolError("This tool intentionally returns an error for testing")


@app.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, total=100, message=f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "done"


@app.tool
async def test_logging_tool(ctx: Context) -> str:
    """Logs three messages for clients that want logs."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", text)
    return "logged"


@app.tool
async def test_missing_capability(ctx: Context) -> str:
    """Needs a client that can sample."""
    return (await ctx.sample("Say hello.", max_tokens=10)).text


@app.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Asks for a name in the middle of its work."""
    answer = await ctx.elicit("What is your name?", str)
    return f"Hello, {answer.unwrap()}"


def later() -> str:
    """Comes and goes."""
    return "here"


@app.tool
async def test_trigger_tool_change() -> str:
    """Changes the list of tools."""
    app.add_tool(later, name="test_temporary_tool")
    app.remove_tool("test_temporary_tool")
    return "tools changed"


@app.tool
async def test_trigger_prompt_change() -> str:
    """Changes the list of prompts."""
    app.add_prompt(later, name="test_temporary_prompt")
    app.remove_prompt("test_temporary_prompt")
    return "prompts changed"


@app.tool
def test_x_mcp_header(region: Annotated[str, Header("Region")]) -> str:
    """Takes a parameter that travels in a header as well.

    Args:
        region: Where to run.
    """
    return f"region {region}"


@app.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
def json_schema_2020_12_tool(arguments: dict[str, object]) -> str:
    """Has an input schema that uses the whole of JSON Schema 2020-12."""
    return f"Got {len(arguments)} arguments"


# --- tools that ask ---------------------------------------------------------------------------------------------------

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
CONTEXT = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
CONFIRM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


@app.tool
def test_input_required_result_elicitation(ctx: Context) -> str | InputRequired:
    """Asks for a name."""
    answer = ctx.accepted("user_name", NAME)
    if answer is None:
        return input_required({"user_name": ask.form("What is your name?", NAME)})
    return f"Hello, {answer['name']}!"


@app.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Asks the client's model."""
    sample = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return sample.text


@app.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Asks for the client's roots."""
    roots = await ctx.roots(key="client_roots")
    return ", ".join(root.uri for root in roots) or "no roots"


@app.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Asks for a confirmation and carries state."""
    await ctx.elicit("Please confirm", CONFIRM, key="confirm")
    return f"state-ok in round {ctx.round}"


@app.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks for three things in one round."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", NAME, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.roots(key="client_roots"),
    )
    return f"{greeting.text} {name.unwrap()['name']} ({len(roots)} roots)"


@app.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks twice, one after the other."""
    first = await ctx.elicit("Step 1: What is your name?", NAME, key="step1")
    second = await ctx.elicit("Step 2: What is your favorite color?", COLOR, key="step2")
    return f"{first.action}, {second.action}"


@app.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Asks, and takes only its own state back."""
    return (await ctx.elicit("Please confirm", CONFIRM, key="confirm")).action


@app.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks only for what the client can answer."""
    if ctx.client.supports("elicitation"):
        return (await ctx.elicit("What is your name?", NAME, key="user_name")).action
    return (await ctx.sample("Make up a name", max_tokens=20, key="name_suggestion")).text


# --- tools of the earlier revisions' scenarios ------------------------------------------------------------------------

PERSON = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{n}", "title": title} for n, title in enumerate(("First", "Second"), start=1)],
        },
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]},
        },
    },
}


@app.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Logs three messages while it works."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", text)
        await asyncio.sleep(0.05)
    return "logged"


@app.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model.

    Args:
        prompt: What to ask it.
    """
    return f"LLM response: {(await ctx.sample(prompt, max_tokens=100)).text}"


@app.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user for a name and an address.

    Args:
        message: What the form says.
    """
    answer = await ctx.elicit(message, PERSON)
    return f"User response: {answer.action}"


@app.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with a default for every kind of field."""
    return f"Elicitation completed: {(await ctx.elicit('Please review the defaults', DEFAULTS)).action}"


@app.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with every kind of choice."""
    return f"Elicitation completed: {(await ctx.elicit('Please choose', ENUMS)).action}"


@app.tool
async def test_reconnection(ctx: Context) -> str:
    """Lets go of the connection before it is done."""
    await ctx.hang_up(retry=0.5)
    await asyncio.sleep(0.1)
    return "Reconnection test completed successfully"


# --- resources --------------------------------------------------------------------------------------------------------


@app.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A static text resource."""
    return "This is the content of the static text resource."


@app.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A static binary resource."""
    return PIXEL.data


@app.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A resource that can be watched."""
    return "Watched resource content."


@app.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, object]:  # noqa: A002
    """A family of resources."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# --- prompts ----------------------------------------------------------------------------------------------------------


@app.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@app.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@app.complete(test_prompt_with_arguments, "arg1")
def complete_arg1(value: str) -> list[str]:
    return [option for option in ("test", "testing", "testValue1") if option.startswith(value)]


@app.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:  # noqa: N803
    """A prompt that carries a resource.

    Args:
        resourceUri: URI of the resource to embed.
    """
    resource = EmbeddedResource(Contents(resourceUri, text="Embedded resource content.", mime_type="text/plain"))
    return [Message.user(resource), Message.user("Please process the embedded resource above.")]


@app.prompt
def test_prompt_with_image() -> list[Message]:
    """A prompt that carries a picture."""
    return [Message.user(PIXEL), Message.user("Please analyze the image above.")]


@app.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks."""
    answer = await ctx.elicit("What context should the prompt use?", CONTEXT, key="user_context")
    return f"Write about {answer.value['context'] if answer.action == 'accept' else 'anything'}."


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    app.run("http", port=parser.parse_args().port)
