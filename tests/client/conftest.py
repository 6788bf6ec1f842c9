"""What the client's tests need: servers of many characters, and an eye on what is left behind."""

import asyncio
import contextlib
import gc
from pathlib import Path

import pytest
import uvloop

from .hostile import Hostile
from .until import until

# A test's uvicorn runs on uvloop, whose first loop opens a pipe for the life of the process.
uvloop.new_event_loop().close()

SETTLING = 2.0
"""Seconds that the other side of a test (a server's sockets, a child's reaper) has to be gone as well."""


@pytest.fixture(scope="session", autouse=True)
def quick_collections():
    """The garbage of a test is looked for after every one; what was imported before need not be looked at."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
async def nothing_is_left():
    """After every test: no task, no descriptor and no child process more than before."""
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 60.0
    descriptors, children = open_descriptors(), child_processes()
    yield
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert {task for task in tasks if not task.done()} == set()
    gc.collect()
    with contextlib.suppress(TimeoutError):
        await until(lambda: not (open_descriptors() - descriptors or child_processes() - children), patience=SETTLING)
    assert open_descriptors() - descriptors == set()
    assert child_processes() - children == set()


def open_descriptors():
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if not target.startswith("/proc/"):
                found.add((link.name, target))
    return found


def child_processes():
    return {child for file in Path("/proc/self/task").glob("*/children") for child in file.read_text().split()}


@pytest.fixture
async def hostile():
    """Starts raw servers, each behaving as badly as its function of (reader, writer) does."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(behave):
            return await stack.enter_async_context(Hostile(behave))

        yield start
