"""The files of docs/deploying.md, as far as a machine without Docker and Kubernetes can try them."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from antiphon import Accepted, Client

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "deploy"

pytestmark = pytest.mark.heavy

SERVER = """
from antiphon import Context, Server

app = Server("slow", version="1.0.0")

@app.tool
async def work(ctx: Context) -> str:
    for done in range(3):
        await ctx.progress(done + 1, 3)
    return "worked" if await ctx.confirm("Really?") else "idle"

@app.tool
async def grow() -> str:
    app.changed("tools")
    return "grown"
"""


def test_the_manifest_fits_the_schemas_of_kubernetes() -> None:
    manifests = list(yaml.safe_load_all((FILES / "kubernetes.yaml").read_text()))
    assert [manifest["kind"] for manifest in manifests] == ["Deployment", "Service"] * 2
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_the_image_file_has_nothing_to_be_said_against_it() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, FILES / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_unit_is_one_that_systemd_understands(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.fail("systemd-analyze is missing: install Debian's package systemd")
    unit = tmp_path / "notes.service"
    text = (FILES / "notes.service").read_text()
    unit.write_text(text.replace("/srv/notes/.venv/bin/antiphon", str(Path(sys.executable).with_name("antiphon"))))
    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert "notes.service" not in done.stderr, done.stderr


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[str]:
    """The address of a server behind nginx, with the configuration of the page."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.fail("nginx is missing: install Debian's package nginx-light")
    (tmp_path / "slow.py").write_text(SERVER)
    command = [
        sys.executable,
        "-m",
        "antiphon",
        "serve",
        "slow.py",
        "--http",
        "--port",
        "0",
        "--allow-host",
        "mcp.example.com",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        found = re.search(r":(\d+)/mcp", server.stderr.readline())
        assert found is not None
        site = (FILES / "nginx.conf").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{found[1]}")
        port = _free_port()
        site = site.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace(
            "mcp.example.com", "localhost 127.0.0.1"
        )
        folders = " ".join(
            f"{kind}_temp_path {tmp_path};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        whole = f"daemon off; worker_processes 1; pid {tmp_path}/pid; error_log stderr; events {{}}\n"
        whole += f"http {{ access_log off; {folders}\n{site} }}\n"
        (tmp_path / "nginx.conf").write_text(whole)
        front = subprocess.Popen([nginx, "-p", tmp_path, "-c", tmp_path / "nginx.conf"], stderr=subprocess.PIPE)
        try:
            _wait_for(port, front)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            front.send_signal(signal.SIGQUIT)
            front.communicate(timeout=20)
            server.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if process.poll() is not None:
            raise AssertionError(process.stderr.read().decode() if process.stderr else "nginx ended")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            os.sched_yield()
        else:
            return
    raise AssertionError("nginx did not listen")


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_questions_progress_and_changes_pass_through_nginx(proxied: str, era: str) -> None:
    seen: list[float] = []
    async with Client(proxied, elicit=lambda _: Accepted({"confirm": True}), era=era) as client:
        result = await client.call_tool("work", progress=lambda done, *_: seen.append(done))
        assert (result.text, result.rounds > 1 or era == "legacy") == ("worked", True)
        assert seen[:3] == [1, 2, 3]
        changes = client.subscribe(tools=True)
        waiting = asyncio.ensure_future(anext(changes))
        async with asyncio.timeout(20):
            while not waiting.done():  # the stream may not be open yet
                await client.call_tool("grow")
        assert waiting.result().kind == "tools"
        await changes.aclose()
