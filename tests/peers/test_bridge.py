"""Official clients of both eras through the bridge to official servers of both eras, over both transports."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Accepted, Client, Root

from .programs import answers, end, free_port, node_program, run, served

pytestmark = [pytest.mark.peers, pytest.mark.heavy]

HERE = Path(__file__).parent
SITE = "bridged"
ANSWERS = {
    "Where?": {"action": "accept", "content": {"region": "eu", "replicas": 2}},
    "Sign in": {"action": "accept"},
    "Name it": {"role": "assistant", "content": {"type": "text", "text": "Bob"}, "model": "parrot"},
    "roots": {"roots": [{"uri": "file:///work"}]},
}
ASKED = [["form", "Where?"], ["roots", "roots"], ["sample", "Name it"], ["url", "Sign in"]]
TEXT = "eux2; accept; Bob; file:///work"
SERVERS = {
    "python-new": (HERE / "asking_server.py", "2026-07-28"),
    "typescript-new": (HERE / "asking_server.mjs", "2026-07-28"),
    "python-old": (HERE / "pushing_server.py", "legacy"),
    "typescript-old": (HERE / "pushing_server.mjs", "auto"),
}


def command_of(script):
    return [sys.executable, str(script)] if script.suffix == ".py" else node_program(script)


@contextlib.contextmanager
def bridge(target, era, folder):
    """Where a bridge to a target answers over HTTP."""
    port, log = free_port(), folder / "bridge.log"
    command = [sys.executable, "-m", "antiphon", "bridge", target, "--era", era, "--http", "--port", str(port)]
    with log.open("w") as output:
        process = subprocess.Popen([*command, "--path", f"/{SITE}/mcp"], stdin=subprocess.DEVNULL, stderr=output)
        try:
            if not answers(process, port):
                pytest.fail(f"the bridge did not start:\n{log.read_text()[-2000:]}")
            yield f"http://127.0.0.1:{port}"
        finally:
            end(process)


@pytest.fixture(
    scope="module", params=[(server, kind) for server in SERVERS for kind in ("http", "stdio")], ids="-".join
)
def upstream(request, tmp_path_factory):
    """An official server as a target, and the era to speak to it."""
    name, kind = request.param
    script, era = SERVERS[name]
    command = command_of(script)
    if kind == "stdio":
        yield shlex.join(command), era
        return
    with served(command, tmp_path_factory.mktemp(name)) as url:
        yield url, era


@pytest.fixture(scope="module")
def url(upstream, tmp_path_factory):
    with bridge(*upstream, tmp_path_factory.mktemp("bridge")) as found:
        yield found


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("asking") / "conversations.json"
    about = {"name": "all", "site": SITE, "tool": "one_by_one", "arguments": {}, "answers": ANSWERS}
    path.write_text(json.dumps([about]))
    return str(path)


def check(told, revision):
    assert json.loads(told)["all"] == {"revision": revision, "text": TEXT, "is_error": False, "asked": ASKED}


def test_the_new_python_client(url, script):
    check(run([sys.executable, str(HERE / "asking_client.py"), script, "http", url], timeout=60), "2026-07-28")


def test_the_new_typescript_client(url, script):
    check(run([*node_program(HERE / "asking_client.mjs"), script, "http", url], timeout=60), "2026-07-28")


@pytest.mark.parametrize("language", ["python", "typescript"])
@pytest.mark.parametrize("kind", ["http", "stdio"])
def test_an_old_client(language, kind, upstream, script, request):
    client = command_of(HERE / ("older_client.py" if language == "python" else "older_client.mjs"))
    if kind == "http":
        where = [request.getfixturevalue("url")]
    else:
        target, era = upstream
        where = [sys.executable, str(HERE / "bridge_on_pipe.py"), era, target]
    check(run([*client, script, kind, *where], timeout=60), "2025-11-25")


# --- other servers ------------------------------------------------------------------------------------------------


def asker(target, era):
    return Client(
        target,
        elicit=lambda question: Accepted({"region": "eu"} if question.message == "Where?" else {"name": "Ann"}),
        sample=lambda _: "sampled",
        roots=[Root("file:///work")],
        era=era,
        env=dict(os.environ),
        timeout=60,
    )


@pytest.mark.parametrize("before", ["2026-07-28", "legacy"])
async def test_mcp_lite_behind_the_bridge(before, tmp_path):
    with served(node_program(HERE / "lite_server.mjs"), tmp_path) as target, bridge(target, "auto", tmp_path) as front:
        async with asker(f"{front}/{SITE}/mcp", before) as client:
            assert (await client.call_tool("echo", {"said": "x"})).text == "x"
            assert (await client.call_tool("where")).text == "accept eu"


@pytest.fixture(params=["http", "stdio"])
def everything(request):
    """The npm server that has everything, as a target."""
    node, _, modules = node_program("x")
    command = [node, str(Path(modules) / "@modelcontextprotocol/server-everything/dist/index.js")]
    if request.param == "stdio":
        yield shlex.join(command)
        return
    port, quiet = free_port(), subprocess.DEVNULL
    environment = {**os.environ, "PORT": str(port)}
    process = subprocess.Popen([*command, "streamableHttp"], env=environment, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        assert answers(process, port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        end(process)


@pytest.mark.parametrize("before", ["2026-07-28", "legacy"])
async def test_server_everything_behind_the_bridge(before, everything, tmp_path):
    with bridge(everything, "auto", tmp_path) as front:
        async with asker(f"{front}/{SITE}/mcp", before) as client:
            progress = []
            assert (await client.call_tool("echo", {"message": "x"})).text == "Echo: x"
            assert "file:///work" in (await client.call_tool("get-roots-list")).text
            assert "sampled" in (await client.call_tool("trigger-sampling-request", {"prompt": "p"})).text
            assert "Name: Ann" in (await client.call_tool("trigger-elicitation-request")).text
            weather = await client.call_tool("get-structured-content", {"location": "New York"})
            assert set(weather.structured) == {"temperature", "conditions", "humidity"}
            await client.call_tool(
                "trigger-long-running-operation",
                {"duration": 0.3, "steps": 3},
                progress=lambda *step: progress.append(step[:2]),
            )
            assert progress == [(1, 3), (2, 3), (3, 3)]
            found = await client.complete(prompt="completable-prompt", argument="department", value="E")
            assert found.values == ["Engineering"]
            assert (await client.read_resource((await client.list_resources())[0].uri)).contents[0].text
