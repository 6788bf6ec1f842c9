"""The cost of starting: imports, modules, and a first result over stdio, each in a process of its own."""

import subprocess
import sys
import tempfile
from threading import Timer
from time import perf_counter

import calls
from contender import SERVERS, Unavailable

TIMEOUT = 30.0


def python(code: str) -> float:
    """Milliseconds from start to end of `python -c code`."""
    start = perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    elapsed = (perf_counter() - start) * 1000
    if done.returncode:
        raise Unavailable(done.stderr.strip().splitlines()[-1])
    return elapsed


def imports(statements: dict[str, str], times: int) -> dict[str, float]:
    """Best time of each import statement, over a Python that does nothing; interleaved."""
    best = dict.fromkeys(["", *statements], float("inf"))
    for _ in range(times):
        for name in best:
            best[name] = min(best[name], python(statements.get(name, "pass")))
    return {name: best[name] - best[""] for name in statements}


def loaded(package: str) -> int:
    """How many modules importing the package loads beyond those of a bare Python."""
    code = f"import sys; before = len(sys.modules); import {package}; print(len(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return int(done.stdout)


def stdio(name: str) -> float:
    """Milliseconds from process start to the first tool result over stdio."""
    start = perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(SERVERS / f"{name}.py"), "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    killer = Timer(TIMEOUT, process.kill)
    killer.start()
    try:
        assert process.stdin
        assert process.stdout
        process.stdin.write(calls.body(calls.echo()) + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        elapsed = (perf_counter() - start) * 1000
    except OSError as error:
        raise Unavailable(f"stdio: {error}") from None
    finally:
        killer.cancel()
        process.kill()
        process.communicate()
    if calls.MARKERS["echo"] not in answer:
        raise Unavailable(f"stdio answered {answer[:200]!r}")
    return elapsed
