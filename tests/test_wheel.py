"""What users install: a wheel and an sdist that bring all they need, and the first page, followed word for word."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import antiphon

ROOT = Path(__file__).parents[1]
PATIENCE = 300

pytestmark = pytest.mark.heavy


def _run(*command: object, cwd: Path, **options: object) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTIPHON", "PYTHON"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds nothing but the wheel and what it asks for."""
    environment = tmp_path_factory.mktemp("empty")
    _run(sys.executable, "-m", "venv", environment, cwd=environment)
    (wheel,) = built.glob("*.whl")
    _run(environment / "bin/pip", "install", "--disable-pip-version-check", "-q", wheel, cwd=environment)
    return environment / "bin"


def test_the_version_stands_in_one_place(built: Path) -> None:
    assert {file.name for file in built.iterdir()} == {
        f"antiphon-{antiphon.__version__}-py3-none-any.whl",
        f"antiphon-{antiphon.__version__}.tar.gz",
    }


def test_the_wheel_holds_the_package_and_its_files_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"antiphon", f"antiphon-{antiphon.__version__}.dist-info"}
    source = ROOT / "src/antiphon"
    kept = {f"antiphon/{file.relative_to(source)}" for file in source.rglob("*") if file.is_file()}
    assert {name for name in kept if "__pycache__" not in name} <= set(names)
    assert wheel.stat().st_size < 1_000_000


def test_the_sdist_can_be_built_again(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path / "again", folder, cwd=tmp_path)
    assert len(list((tmp_path / "again").glob("*.whl"))) == 1


def test_a_stranger_follows_the_first_page_in_an_empty_environment(programs: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs/getting-started.md").read_text()
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    server, question, client = (
        next(block for block in blocks if word in block)
        for word in ("def greet", "def introduce", "async with Client(")
    )
    file = tmp_path / "greeter.py"
    file.write_text(server)
    call = programs / "antiphon", "call", "greeter.py"
    assert "Greet a person." in _run(*call, cwd=tmp_path)
    assert _run(*call, "greet", "name=Ada", "loud=true", cwd=tmp_path) == "HELLO, ADA!\n"
    head, guard, tail = server.partition('if __name__ == "__main__":')
    file.write_text(f"{head}{question}\n\n{guard}{tail}")
    (tmp_path / "answers.yaml").write_text("value: Ada\n")
    assert _run(*call, "introduce", "--answers", "answers.yaml", cwd=tmp_path) == "Hello, Ada\n"

    serving = subprocess.Popen(
        [programs / "antiphon", "serve", "greeter.py", "--http", "--port", "0"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stderr is not None
        address = re.search(r"http://[\d.]+:\d+/mcp", serving.stderr.readline())
        assert address is not None
        body = client.replace("http://127.0.0.1:8000/mcp", address[0])
        first, _, rest = body.partition("\n\n")
        script = f"import asyncio\n{first}\nasync def main():\n" + "".join(
            f"    {line}\n" for line in rest.splitlines()
        )
        assert _run(programs / "python", "-c", f"{script}asyncio.run(main())", cwd=tmp_path) == "Hello, Ada\n"
    finally:
        serving.terminate()
        serving.communicate(timeout=30)
    assert serving.returncode == 0


def test_the_readme_s_server_and_suite_run_in_an_empty_environment(programs: Path, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    for title, body in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL):
        (tmp_path / title).write_text(body)
    assert "1 passed" in _run(programs / "antiphon", "test", "deploy.mcp.yaml", cwd=tmp_path)
