"""The pytest plugin: a client for the server under test, scripted answers, and suites collected as tests.

Every run of pytest loads it where Antiphon is installed, so it imports nothing of Antiphon until a test uses it.
"""

import contextlib
import functools
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from antiphon.testing.answers import Script
    from antiphon.testing.client import McpClient, SyncMcpClient
    from antiphon.testing.pytest_suites import SuiteFile
    from antiphon.testing.servers import ServerUnderTest
    from antiphon.testing.snapshots import TestSnapshots

SUITES: Final = (".mcp.yaml", ".mcp.yml")
ERAS: Final = ("2026-07-28", "legacy")
MARKS: Final = (
    "mcp(server, **options): the server to test, and what else its Client takes; declare=[...] limits what it can ask",
    "eras(*eras): run the test once for each era, '2026-07-28' and 'legacy' unless others are named",
    "rotate(instances=2): each request goes to another instance of the server, which was started afresh",
    "cassette(file): answer from a recording; if there is none, make it",
)
_LIBRARY: Final = (str(Path(__file__).parents[1]) + os.sep, str(Path(inspect.__file__).parent / "asyncio") + os.sep)
_FAILED: Final = pytest.StashKey[bool]()
_APP: Final = re.compile(r"(?P<place>[\w.]+|.*\.py):(?P<name>[\w.]+)")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("antiphon", "testing MCP servers (antiphon)")
    parser.addini("mcp_server", "The server to test: a URL, module:app, file.py:app, mcp.json:name, or a command")
    group.addoption(
        "--mcp-server", metavar="SERVER", help="The server to test, instead of the one in the configuration"
    )


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None]:
    yield
    # Added last: another plugin may have the same option, with the same meaning.
    with contextlib.suppress(ValueError):
        group = parser.getgroup("antiphon")
        group.addoption("--update-snapshots", action="store_true", help="Keep what tests get as their snapshots")


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", mark)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("eras")
    if mark is not None and "mcp_era" in metafunc.fixturenames:
        metafunc.parametrize("mcp_era", mark.args or ERAS, indirect=True)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "SuiteFile | None":
    if not file_path.name.endswith(SUITES):
        return None
    from antiphon.testing.pytest_suites import SuiteFile

    return SuiteFile.from_parent(parent, path=file_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.excinfo is not None and call.when == "call":
        item.stash[_FAILED] = True
        is_ours = "mcp_client" in getattr(item, "fixturenames", ())
        if is_ours and not item.config.getoption("fulltrace", default=False):
            _end_where_the_test_does(call.excinfo.value)
    return (yield)


def _end_where_the_test_does(fault: BaseException) -> None:
    """Cut the frames of the library off the traceback of an error that it raised."""
    errors = sys.modules.get("antiphon.errors")
    if errors is None or not isinstance(fault, errors.AntiphonError):
        return
    last, frame = None, fault.__traceback__
    while frame is not None:
        if not frame.tb_frame.f_code.co_filename.startswith(_LIBRARY):
            last = frame
        frame = frame.tb_next
    if last is not None:
        last.tb_next = None


# --- fixtures -----------------------------------------------------------------------------------------------------


@pytest.fixture
def mcp_server(pytestconfig: pytest.Config) -> object:
    """The server under test. Override it: return a Server, a function that makes one, a URL, a command or a file."""
    text = pytestconfig.getoption("--mcp-server") or pytestconfig.getini("mcp_server")
    if not text:
        pytest.fail(
            "There is no server to test. Say which in conftest.py:\n\n"
            "    @pytest.fixture\n"
            "    def mcp_server():\n"
            "        return app  # a Server, a URL, or a command: ['python', 'server.py']\n\n"
            'or in the configuration:  mcp_server = "shop:app"',
            pytrace=False,
        )
    return _server(str(text), pytestconfig)


@pytest.fixture
def mcp_era(request: pytest.FixtureRequest) -> str:
    """The era that is spoken; ``@pytest.mark.eras`` sets it."""
    era = str(getattr(request, "param", "auto"))
    return ERAS[0] if era == "modern" else era


@pytest.fixture
def mcp_answers(request: pytest.FixtureRequest) -> "Iterator[Script]":
    """The test's script: ``answers(confirm=True)``."""
    from antiphon.testing.answers import AnswersUnused, Script

    declare = _options(request.node).get("declare")
    script = Script() if declare is None else Script(declare=declare)
    yield script
    unused = script.told_unused
    if unused and not request.node.stash.get(_FAILED, default=False):
        # Not a failure: the answers may come from a fixture that many tests share.
        request.node.warn(AnswersUnused(f"Answers that were not asked for: {', '.join(unused)}"))


@pytest.fixture
def answers(mcp_answers: "Script") -> "Script":
    """Add answers: by key, ``answers(confirm=True)``, or by message, ``answers({"Deploy?": "decline"})``."""
    return mcp_answers


@pytest.fixture
def mcp_client(
    request: pytest.FixtureRequest, mcp_answers: "Script", mcp_era: str
) -> "Iterator[McpClient | SyncMcpClient]":
    """A client of the server under test: to be awaited in an ``async def`` test, and not in a plain one."""
    from antiphon.testing.client import McpClient, SyncMcpClient

    connection = _connection(request, mcp_era)
    apart = {"server", "declare", "auth", "identity"}
    options = {name: value for name, value in _options(request.node).items() if name not in apart}
    client: McpClient | SyncMcpClient
    if inspect.iscoroutinefunction(request.node.obj):
        client = McpClient(connection, mcp_answers, **options)
        with _closing_after(request.node, client):
            yield client
    else:
        client = SyncMcpClient(connection, mcp_answers, **options)
        try:
            yield client
        finally:
            client.close()
        client.check_cassette()
    if client.is_recording and connection.cassette is not None and request.node.stash.get(_FAILED, default=False):
        # The next run must not repeat what a failed test did.
        connection.cassette.unlink(missing_ok=True)


@pytest.fixture
def antiphon_client(mcp_client: "McpClient | SyncMcpClient") -> "McpClient | SyncMcpClient":
    """Another name for ``mcp_client``."""
    return mcp_client


@pytest.fixture
def assert_snapshot(request: pytest.FixtureRequest) -> "TestSnapshots":
    """``assert_snapshot(result)`` fails unless it is what was kept; ``--update-snapshots`` keeps it."""
    from antiphon.testing.snapshots import Snapshots, TestSnapshots

    update = bool(request.config.getoption("--update-snapshots", default=False))
    return TestSnapshots(Snapshots.beside(request.node.path, update=update), _label(request.node))


# --- how a test says what it wants --------------------------------------------------------------------------------


def _label(node: Any) -> str:
    """Return what a test is called in its file, its classes included."""
    return str(node.nodeid.partition("::")[2] or node.name).replace("::", ".")


def _options(node: Any) -> dict[str, Any]:
    """Return the options of the ``mcp`` marks; the nearest mark goes first."""
    options: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers("mcp"))):
        options |= mark.kwargs
        if mark.args:
            options["server"] = mark.args[0]
    return options


def _connection(request: pytest.FixtureRequest, era: str) -> "ServerUnderTest":
    import msgspec

    from antiphon.testing.servers import ServerUnderTest

    options = _options(request.node)
    server = options.get("server")
    if server is None:
        server = request.getfixturevalue("mcp_server")
    elif isinstance(server, str):
        server = _server(server, request.config)
    known = server if isinstance(server, ServerUnderTest) else ServerUnderTest(target=server)
    instances = _instances(request.node)
    if instances and era == "legacy":
        pytest.skip("An older session lives in one instance: it cannot be rotated")
    return msgspec.structs.replace(
        known,
        era=known.era if era == "auto" else era,
        rotate=instances or known.rotate,
        auth=options.get("auth", known.auth),
        identity=options.get("identity", known.identity),
        cassette=_cassette(request, era) or known.cassette,
    )


def _instances(node: Any) -> int:
    """Return how many instances take turns; 0 if the test does not say."""
    mark = node.get_closest_marker("rotate")
    if mark is None:
        return 0
    given = [*mark.args, *mark.kwargs.values()] or [2]
    if len(given) > 1 or mark.kwargs.keys() - {"instances"} or type(given[0]) is not int or given[0] < 1:
        said = ", ".join([*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())])
        pytest.fail(
            f"@pytest.mark.rotate({said}) makes no sense: it takes a whole number of instances from 1, as in rotate(3)",
            pytrace=False,
        )
    return int(given[0])


def _cassette(request: pytest.FixtureRequest, era: str) -> Path | None:
    mark = request.node.get_closest_marker("cassette")
    if mark is None:
        return None
    test: Path = request.node.path
    if not mark.args:
        from antiphon.testing.snapshots import file_name

        return test.parent / "cassettes" / test.stem / file_name(_label(request.node))
    file = test.parent / str(mark.args[0])
    # A recording is of one era.
    return file if era == "auto" else file.with_suffix(f".{era}{file.suffix}")


def _server(text: str, config: pytest.Config) -> object:
    """Return the server that a text names.

    ``http://...``, ``shop:app``, ``server.py:app``, ``mcp.json:name``, ``python server.py``.
    """
    quoted = re.fullmatch(r"""\s*(["'])([^"']*)\1\s*""", text)
    text = text if quoted is None else quoted[2]  # in an ini file quotes are part of the value
    if text.startswith(("http://", "https://")):
        return text
    configured = _configured(text, config)
    if configured is not None:
        return configured
    app = _APP.fullmatch(text)
    if app is None:
        command = shlex.split(text)
        # The interpreter that runs the tests has what the server needs.
        words = command if command[0].endswith(".py") else command[1:] if command[0] in {"python", "python3"} else None
        return command if words is None else [sys.executable, *words]
    return _in_file(text, config) if app["place"].endswith(".py") else _in_module(app["place"], app["name"], config)


def _configured(text: str, config: pytest.Config) -> "ServerUnderTest | None":
    """Return how to reach ``mcp.json:name`` or ``cursor:name``; None if the text is neither."""
    from antiphon.config.servers import find_server, split
    from antiphon.errors import ConfigUnusable
    from antiphon.testing.servers import ServerUnderTest

    place = split(text, config.rootpath)
    if place is None:
        return None
    try:
        found = find_server(*place, folder=config.rootpath)
    except ConfigUnusable as fault:
        pytest.fail(str(fault), pytrace=False)
    return ServerUnderTest(target=found.target, headers=found.headers, env=found.env, cwd=found.cwd)


def _in_file(text: str, config: pytest.Config) -> object:
    from antiphon.loading import ServerMissing, load_fresh
    from antiphon.server.dispatch import Service

    try:
        return load_fresh(text, config.rootpath, Service)
    except ServerMissing as fault:
        pytest.fail("\n\n".join(filter(None, [f"The server to test is {text!r}. {fault}", fault.log])), pytrace=False)


def _in_module(place: str, name: str, config: pytest.Config) -> object:
    """Return the server of a module, not imported afresh: a test that patches the module patches the server."""
    if str(config.rootpath) not in sys.path:
        sys.path.insert(0, str(config.rootpath))
    try:
        return functools.reduce(getattr, name.split("."), __import__(place, fromlist=["*"]))
    except ModuleNotFoundError as fault:
        if not fault.name or not f"{place}.".startswith(f"{fault.name}."):
            raise
        why = f"there is no module {fault.name!r} in {config.rootpath}, nor is one installed"
    except AttributeError:
        why = f"{place} has no {name!r}"
    pytest.fail(f"The server to test is '{place}:{name}', and {why}", pytrace=False)


@contextlib.contextmanager
def _closing_after(item: Any, client: "McpClient") -> Generator[None]:
    """Close a client at the end of an asynchronous test, in the event loop of the test."""
    test: Callable[..., Any] = item.obj

    @functools.wraps(test)
    async def closing(*args: Any, **kwargs: Any) -> Any:
        try:
            return await test(*args, **kwargs)
        finally:
            await client.close()
            client.check_cassette()

    item.obj = closing
    try:
        yield
    finally:
        item.obj = test
