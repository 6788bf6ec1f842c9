"""The documentation runs: every block of every page, in order, and every claim that can be checked.

What a page may hold:

```python              is executed, in one module for each page; ``await`` is allowed at the top level
```python title="x.py"  the same, and saved in the page's folder for the commands that follow
```python of="x.py"     is a part of that file, word for word; a test runs the file. So are nginx, ini, dockerfile, yaml
```text                is what the block before printed, or the error that it raised
```json                is compared by the test that follows; with a title, it is saved for the commands instead
```yaml title="x.yaml"  is saved in the page's folder for the commands that follow
```console             holds commands after ``$``, which are run, and what they print; ``...`` stands for anything
```console serves      holds one command that serves; it is stopped at the end of the page
```sh                  is for the reader's machine: pip, make, git, servers elsewhere; not run here
<!-- test              holds what readers need not see: assertions, with the words of conftest.py; ``shown`` is the
-->                    text or the JSON of the block before, ``rows`` are the cells of the table right above

``python no-run reason="..."`` leaves a block out, and one of the tests here counts them.
"""

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import antiphon
from antiphon.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIRST = {"README.md", "docs/index.md", "docs/getting-started.md"}
"""Read first, and so run every day; other pages that start processes wait for `make docs` and `make heavy`."""
SOURCE = "https://github.com/antiphon-mcp/antiphon/blob/main/"
PICTURES = {"", "mermaid"}
FILES = {"nginx", "ini", "dockerfile"}
"""Files of other programs, parts of which are shown."""
KNOWN = {"python", "text", "json", "yaml", "console", "sh", "test", *PICTURES, *FILES}
READERS_COMMANDS = {"antiphon", "pip", "make", "git", "cd", "python3"}
PATIENCE = 30.0


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    """Of its first line of content, counted from 1."""
    kind: str
    options: dict[str, str]
    body: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = iter(enumerate(page.read_text().splitlines(), 1))
    for number, line in lines:
        if fence := re.match("`{3,}", line):
            kind, options = _info(line.removeprefix(fence[0]))
            found.append(Block(page, number + 1, kind, options, _until(fence[0], lines, page, number)))
        elif line.startswith("<!-- test"):
            assert line == "<!-- test", f"{page}:{number}: a test begins on the line below <!-- test"
            found.append(Block(page, number + 1, "test", {}, _until("-->", lines, page, number)))
    return found


def _info(text: str) -> tuple[str, dict[str, str]]:
    kind, *options = shlex.split(text) or [""]
    return kind, {name: value for name, _, value in (option.partition("=") for option in options)}


def _until(end: str, lines: Iterator[tuple[int, str]], page: Path, start: int) -> str:
    body: list[str] = []
    for _, line in lines:
        if line == end:
            return "".join(f"{line}\n" for line in body)
        body.append(line)
    raise AssertionError(f"{page}:{start}: nothing ends this block: expected a line {end!r}")


def marked(page: Path) -> Any:
    name = str(page.relative_to(ROOT))
    starts_processes = any(block.kind == "console" for block in blocks_of(page))
    return pytest.param(page, id=name, marks=[pytest.mark.heavy] if starts_processes and name not in FIRST else [])


# --- running a page -------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """One page under way."""

    page: Path
    folder: Path
    words: dict[str, Any]
    module: ModuleType
    runner: asyncio.Runner
    served: list["Served"] = field(default_factory=list)

    def block(self, before: Block | None, block: Block, after: Block | None) -> None:
        if "title" in block.options:
            (self.folder / block.options["title"]).write_text(block.body)
        match block.kind:
            case _ if "of" in block.options or block.kind in FILES:
                whole = (ROOT / block.options["of"]).read_text()
                assert block.body in whole, f"{block.place} is not in {block.options['of']}"
            case "python" if "no-run" not in block.options:
                self._python(block, after)
            case "test":
                self._test(before, block)
            case "console" if "serves" in block.options:
                self._serve(block)
            case "console":
                self._commands(block)
            case _:
                pass

    def _python(self, block: Block, after: Block | None) -> None:
        expected = after.body if after is not None and after.kind == "text" else ""
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                self._execute(block, vars(self.module))
        except Exception as fault:
            printed.write(f"{type(fault).__name__}: {fault}\n")
            if not _same(expected, printed.getvalue()):
                raise
        assert _same(expected, printed.getvalue()), f"{block.place} printed:\n{printed.getvalue()}"

    def _test(self, before: Block | None, block: Block) -> None:
        shown = None
        if before is not None:
            shown = json.loads(before.body) if before.kind == "json" else before.body
        names = {**self.words, **vars(self.module), "shown": shown, "rows": rows_above(block)}
        self._execute(block, names)
        # What one test has defined, the next may use; what the page defines goes before.
        self.words = {name: value for name, value in names.items() if name not in vars(self.module)}

    def _execute(self, block: Block, names: dict[str, Any]) -> None:
        # So many empty lines that a traceback shows the page's own line.
        source = "\n" * (block.line - 1) + self._here(block.body)
        code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            self.runner.run(asyncio.wait_for(eval(code, names), PATIENCE))
        else:
            exec(code, names)

    def _commands(self, block: Block) -> None:
        for command, expected in commands_of(block):
            done = subprocess.run(  # a shell, since pages show pipes
                self._here(command),
                shell=True,
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, f"{block.place}: {command} ended with {done.returncode}:\n{done.stdout}"
            if expected:
                assert _same(expected, done.stdout), f"{block.place}: {command} printed:\n{done.stdout}"

    def _serve(self, block: Block) -> None:
        ((command, expected),) = commands_of(block)
        served = Served(command, self.folder)
        self.served.append(served)
        announced = served.announced()
        shown = announced.replace(served.base, _base_in(expected or announced))
        assert not expected or _same(expected, shown), f"{block.place}: {command} printed:\n{shown}"

    def _here(self, text: str) -> str:
        """Pages say port 8000; tests take whichever is free."""
        return text.replace("http://127.0.0.1:8000", self.served[-1].base) if self.served else text


class Served:
    """A command that serves, on a free port."""

    def __init__(self, command: str, folder: Path) -> None:
        self._command = command
        self._process = subprocess.Popen(
            shlex.split(f"{command} --port 0"),
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.base = ""

    def announced(self) -> str:
        """What it prints until it says where it serves."""
        assert self._process.stdout is not None
        impatience = threading.Timer(PATIENCE, self._process.kill)
        impatience.start()
        printed = ""
        try:
            for line in self._process.stdout:
                printed += line
                if "http://" in line and "[::1]" not in line:
                    self.base = _base_in(line)
                    return printed
        finally:
            impatience.cancel()
        raise AssertionError(f"{self._command} did not say where it serves:\n{printed}")

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.stdout is not None
        try:
            rest, _ = self._process.communicate(timeout=PATIENCE)
        finally:
            self._process.kill()
        assert self._process.returncode == 0, f"{self._command} ended with {self._process.returncode}:\n{rest}"


def rows_above(block: Block) -> list[list[str]]:
    """The table that ends right above a test: its rows, without heading and rule."""
    above = block.page.read_text().splitlines()[: block.line - 2]
    while above and not above[-1]:
        above.pop()
    table = list(takewhile(lambda line: line.startswith("|"), reversed(above)))[::-1][2:]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def commands_of(block: Block) -> list[tuple[str, str]]:
    """Each command with the output that is shown below it."""
    found: list[tuple[str, str]] = []
    for line in block.body.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and found[-1][0].endswith("\\\n"):
            found[-1] = (found[-1][0] + line, "")
        else:
            assert found, f"{block.place}: a console begins with a command: $ ..."
            found[-1] = (found[-1][0], found[-1][1] + line)
    return [(command.strip(), output) for command, output in found]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}


def _base_in(text: str) -> str:
    found = re.search(r"http://[\w.-]+:\d+", text)
    assert found is not None, text
    return found[0]


def _same(expected: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)


@pytest.fixture
def run(
    request: pytest.FixtureRequest, tmp_path: Path, words: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    page: Path = request.param
    name = "page_" + re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with asyncio.Runner() as runner:
        under_way = Run(page, tmp_path, words, module, runner)
        try:
            yield under_way
        finally:
            for served in under_way.served:
                served.stop()


@pytest.mark.parametrize("run", [marked(page) for page in PAGES], indirect=True)
def test_a_page_does_what_it_says(run: Run) -> None:
    blocks = blocks_of(run.page)
    for before, block, after in zip([None, *blocks], blocks, [*blocks[1:], None], strict=False):
        run.block(before, block, after)


# --- what holds for all pages ---------------------------------------------------------------------------------------

ALL = [block for page in PAGES for block in blocks_of(page)]


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    assert [block.place for block in ALL if block.kind not in KNOWN] == []


def test_no_block_is_left_out() -> None:
    left_out = [block for block in ALL if "no-run" in block.options]
    assert [block.place for block in left_out if not block.options.get("reason")] == []
    assert len(left_out) == 0


def test_output_follows_what_printed_it() -> None:
    before = {id(after): block for block, after in pairwise(ALL) if block.page == after.page}
    outputs = [block for block in ALL if block.kind == "text"]
    assert [block.place for block in outputs if id(block) not in before or before[id(block)].kind != "python"] == []


def test_json_is_compared_by_the_test_that_follows() -> None:
    following = {id(block): after for block, after in pairwise(ALL) if block.page == after.page}
    shown = [block for block in ALL if block.kind == "json" and "title" not in block.options]
    assert [b.place for b in shown if id(b) not in following or "shown" not in following[id(b)].body] == []


def test_yaml_is_saved_for_what_follows() -> None:
    assert [block.place for block in ALL if block.kind == "yaml" and not {"title", "of"} & block.options.keys()] == []


def test_commands_for_the_reader_are_ones_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in (block for block in ALL if block.kind == "sh"):
        for line in block.body.splitlines():
            program, *rest = shlex.split(line, comments=True)
            assert Path(program).name in READERS_COMMANDS, f"{block.place}: {line}"
            if program == "antiphon":
                assert rest[0] in COMMANDS, f"{block.place}: {line}"
            wanted = [word for word in rest if "=" not in word]
            assert program != "make" or set(wanted) <= targets, f"{block.place}: {line}"


def _links(page: Path) -> list[str]:
    """The links of a page that lead to a file here, relative to the page."""
    found = re.findall(r"\]\(([^)\s]+)\)", _prose(page))
    here = [
        os.path.relpath(ROOT / link.removeprefix(SOURCE), page.parent) if link.startswith(SOURCE) else link
        for link in found
    ]
    return [link for link in here if "://" not in link]


def test_the_links_of_the_readme_work_on_the_package_index_too() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", _prose(ROOT / "README.md"))
    assert [link for link in links if "://" not in link] == []
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert SOURCE.startswith(urls["Source"])


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in _links(page):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), f"{page.relative_to(ROOT)} links to {target}"
            assert not anchor or anchor in _anchors(file), f"{page.relative_to(ROOT)} links to {target}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        paths = (link.partition("#")[0] for link in _links(page))
        waiting += [(page.parent / path).resolve() for path in paths if path.endswith(".md")]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


def test_every_public_name_is_explained_somewhere() -> None:
    told = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in antiphon.__all__ if not re.search(rf"\b{name}\b", told)] == []


def _prose(page: Path) -> str:
    return re.sub(r"^(`{3,}).*?^\1$|<!--.*?-->", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
