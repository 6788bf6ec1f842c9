"""The house stands as it was drawn: layers, purity, a light import, a short way to the tool."""

import ast
import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import antiphon
from antiphon import Server

ROOT = Path(antiphon.__file__).parent
# Bottom up. A file may import from its own layer and from those before it.
LAYERS = [
    "tracebacks",
    "escaping",
    "errors",
    "types",
    "uri",
    "loading",
    "threads",
    "config",
    "wire",
    "shapes",
    "rounds",
    "oauth",
    "stores",
    "http",
    "inbox",
    "server",
    "transports",
    "legacy",
    "eras",
    "client",
    "auth",
    "workers",
    "bridge",
    "app",
    "adapt",
    "testing",
    "inspect",
    "cli",
    "__main__",
]
# A middleware for those who trace: it stands beside the application and nothing stands on it.
BESIDE = {"tracing": "app"}
# Those who use the library as its users do may import what users import.
USERS = {"testing", "inspect", "cli", "__main__"}
PURE = {"wire", "rounds", "oauth"}
IMPURE_MODULES = {"time", "random", "socket", "os", "asyncio", "secrets", "threading", "subprocess", "ssl", "select"}
FILES = sorted(ROOT.rglob("*.py"))


def module_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def layer_of(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def imports_of(path):
    """Every module that a file imports, also inside functions and `if TYPE_CHECKING`, with the line."""
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = importlib.util.resolve_name("." * node.level + base, package)
            for alias in node.names:
                # `from package import module` imports the module.
                inner = f"{base}.{alias.name}"
                yield (inner if inner in MODULES else base), node.lineno


def ours(path):
    return [(module, line) for module, line in imports_of(path) if module.split(".")[0] == "antiphon"]


# --- layers -------------------------------------------------------------------------------------------------------


def test_every_file_belongs_to_a_layer():
    layers = {layer_of(module) for module in MODULES} - {None}
    assert layers <= {*LAYERS, *BESIDE}


def test_a_file_imports_only_from_its_own_layer_and_those_below():
    rank = {layer: number for number, layer in enumerate(LAYERS)}
    rank |= {layer: rank[below] + 0.5 for layer, below in BESIDE.items()}
    wrong = []
    for path in FILES:
        layer = layer_of(module_of(path))
        for module, line in ours(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            if module not in MODULES:
                wrong.append(f"{where}: there is no module {module}")
            elif layer is None or (module == "antiphon" and layer in USERS):
                continue
            elif module == "antiphon" or rank[layer_of(module)] > rank[layer]:
                wrong.append(f"{where}: {layer} may not import {module}")
    assert wrong == []


def test_http_imports_nothing_of_the_other_layers():
    wrong = [
        f"{path.name}:{line} imports {module}"
        for path in sorted((ROOT / "http").rglob("*.py"))
        for module, line in ours(path)
        if layer_of(module) != "http"
    ]
    assert wrong == []


def test_no_import_goes_round_in_a_circle():
    graph = {name: {module for module, _ in ours(path) if module in MODULES} - {name} for name, path in MODULES.items()}
    # What nothing imports, and then what only that imports: whatever remains goes round.
    while free := [name for name in graph if not any(name in others for others in graph.values())]:
        for name in free:
            del graph[name]
    assert graph == {}


@pytest.mark.parametrize("layer", sorted(PURE))
def test_the_core_is_pure(layer):
    wrong = []
    for path in sorted((ROOT / layer).rglob("*.py")):
        where = path.relative_to(ROOT)
        wrong += [
            f"{where}:{node.lineno} is async"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await)
        ]
        wrong += [
            f"{where}:{line} imports {module}"
            for module, line in imports_of(path)
            if module.split(".")[0] in IMPURE_MODULES
        ]
    assert wrong == []


# --- the import ---------------------------------------------------------------------------------------------------

HEAVY = [
    "uvicorn",
    "uvloop",
    "httptools",
    "click",
    "rich",
    "pydantic",
    "jsonschema_rs",
    "cryptography",
    "joserfc",
    "antiphon.oauth.flow",
    "sqlite3",
    "redis",
    "starlette",
    "h11",
    "opentelemetry",
    "antiphon.cli",
    "antiphon.client",
    "antiphon.config",
    "antiphon.inbox",
    "antiphon.testing",
    "antiphon.transports.stdio_server",
    "antiphon.transports.serve",
]


def loaded_by(code):
    """The modules that a fresh interpreter has after some code, and had not before."""
    script = (
        "import sys; import encodings.idna, site; before = set(sys.modules)\n"
        f"{code}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    return set(done.stdout.split())


def third_party(modules):
    names = {module.split(".")[0] for module in modules} - {"antiphon"}
    # msgspec looks for typing_extensions, which the development tools bring along.
    return {name for name in names if name not in {*sys.stdlib_module_names, "typing_extensions"} and name[0] != "_"}


@pytest.mark.parametrize("code", ["import antiphon", "from antiphon import Context, Image, Server, ToolError"])
def test_importing_antiphon_loads_nothing_heavy(code):
    loaded = loaded_by(code)
    assert [name for name in HEAVY if name in loaded] == []
    assert third_party(loaded) <= {"msgspec"}


def test_a_server_that_answers_in_memory_loads_nothing_heavy_either():
    code = """
import asyncio, antiphon
from antiphon.transports.memory import MemoryLink
app = antiphon.Server("x")
@app.tool
async def echo(text: str) -> dict[str, str]:
    return {"text": text}
meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
params = {"name": "echo", "arguments": {"text": "hi"}, "_meta": meta}
reply = asyncio.run(MemoryLink(app).send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
assert reply["result"]["structuredContent"] == {"text": "hi"}, reply
"""
    loaded = loaded_by(code)
    assert [name for name in HEAVY if name in loaded] == []
    assert third_party(loaded) <= {"msgspec"}


# --- the public face ----------------------------------------------------------------------------------------------


def test_every_public_name_exists_once_and_is_meant():
    assert [name for name in antiphon.__all__ if getattr(antiphon, name, None) is None] == []
    assert len(set(antiphon.__all__)) == len(antiphon.__all__)
    assert [name for name in antiphon.__all__ if name.startswith("_")] == []


def test_nothing_is_public_by_accident():
    modules = {name.split(".")[1] for name in MODULES if "." in name}
    found = {name for name in dir(antiphon) if not name.startswith("_")} - modules
    assert found - set(antiphon.__all__) == set()


def test_every_public_class_and_function_says_what_it_is():
    def says(thing):
        # A docstring of its own, or one that an ancestor of ours wrote for all its kind.
        kin = thing.__mro__ if isinstance(thing, type) else [thing]
        return any(one.__doc__ for one in kin if one.__module__.startswith("antiphon"))

    public = {name: getattr(antiphon, name) for name in antiphon.__all__}
    mute = [name for name, thing in public.items() if isinstance(thing, type | FunctionType) and not says(thing)]
    assert mute == []


def test_a_star_import_brings_exactly_the_public_names():
    namespace = {}
    exec("from antiphon import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(antiphon.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        antiphon.no_such_name  # noqa: B018


def test_types_are_shipped():
    assert (ROOT / "py.typed").is_file()


# --- the way to the tool ------------------------------------------------------------------------------------------


async def test_a_post_reaches_the_tool_in_six_frames_four_files_and_one_task():
    from asgi import Http
    from messages import tool_call

    app = Server("short")
    seen = {}

    @app.tool
    async def look(text: str) -> str:
        frame, files = sys._getframe().f_back, []
        while frame is not None:
            if Path(frame.f_code.co_filename).is_relative_to(ROOT):
                files.append(frame.f_code.co_filename)
            frame = frame.f_back
        seen.update(files=files, task=asyncio.current_task(), tasks=asyncio.all_tasks())
        return text

    http = Http(app.asgi())
    await http.tool("look", {"text": "warm"})
    before = asyncio.all_tasks()
    exchange = http.open(tool_call("look", {"text": "hi"}))
    reply = await exchange.reply()
    assert reply.result["content"][0]["text"] == "hi"
    assert len(seen["files"]) <= 6, seen["files"]
    assert len(set(seen["files"])) <= 4, set(seen["files"])
    assert seen["task"] is exchange.task
    assert seen["tasks"] - before == {exchange.task}
