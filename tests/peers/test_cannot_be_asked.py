"""The official clients, declaring nothing: a person answers elsewhere, and the tool does its work exactly once."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from .people import Desk, answer
from .programs import node_program, served

pytestmark = [pytest.mark.peers, pytest.mark.heavy]

HERE = Path(__file__).parent
SERVER = [sys.executable, str(HERE / "ops_server.py")]
ERASE = {"name": "erase", "arguments": {"what": "staging"}}
REVISION = {"auto": "2026-07-28", "legacy": "2025-11-25"}


class Caller:
    """A client program that is told what to call, line by line."""

    def __init__(self, process):
        self._process = process
        self.revision = json.loads(process.stdout.readline())

    def call(self, call=ERASE):
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def calling(language, mode, *target):
    command = (
        [sys.executable, str(HERE / "silent_client.py")]
        if language == "python"
        else node_program(HERE / "silent_client.mjs")
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, mode, *target], **pipes) as process:
        try:
            yield Caller(process)
        finally:
            process.stdin.close()
            process.wait(20)


def texts(result):
    return "".join(block["text"] for block in result["content"])


def page_in(result):
    return re.search(r"http://\S+/inbox/\w+", texts(result))[0]


CLIENTS = pytest.mark.parametrize("mode", ["auto", "legacy"])
LANGUAGES = pytest.mark.parametrize("language", ["python", "typescript"])


@CLIENTS
@LANGUAGES
def test_two_questions_are_answered_on_the_page_and_it_erases_once(language, mode, tmp_path):
    effects = tmp_path / "effects"
    with served([*SERVER, str(effects)], tmp_path) as url, calling(language, mode, "http", url) as client:
        assert client.revision == REVISION[mode]
        for question in ("Erase staging?", "Really erase staging?"):
            for _ in range(2):
                told = client.call()
                assert told["isError"]
                assert question in texts(told)
                assert "same arguments" in texts(told)
            answer(page_in(told), cookie="session=ada")
        assert not effects.exists()
        assert json.loads(client.call()["content"][0]["text"]) == {"erased": "staging"}
        assert "was not run again" in texts(client.call())
    assert effects.read_text() == "erased staging\n"


@CLIENTS
@LANGUAGES
def test_two_questions_are_answered_in_the_browser_and_it_erases_once(language, mode, tmp_path):
    effects, person = tmp_path / "effects", Desk()
    try:
        with calling(language, mode, "stdio", *SERVER, str(effects), "--browser", str(person.port)) as client:
            assert client.revision == REVISION[mode]
            done = client.call()
    finally:
        person.leave()
    assert json.loads(texts(done)) == {"erased": "staging"}
    assert not done.get("isError")
    assert len(person.opened) == 2
    assert effects.read_text() == "erased staging\n"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_parked_at_one_instance_goes_on_at_another(mode, tmp_path, monkeypatch):
    from antiphon.rounds.token import generate_key
    from redis_server import start_redis

    monkeypatch.setenv("ANTIPHON_KEYS", generate_key(b"e" * 32))
    effects = tmp_path / "effects"
    folders = [tmp_path / name for name in ("redis", "one", "two")]
    for folder in folders:
        folder.mkdir()

    with start_redis(folders[0]) as redis:
        launcher = tmp_path / "launch.py"
        launcher.write_text(
            "import runpy, sys\n"
            f"sys.argv = [{SERVER[1]!r}, {str(effects)!r}, *sys.argv[1:], '--store', {redis!r}]\n"
            f"runpy.run_path({SERVER[1]!r}, run_name='__main__')\n"
        )
        command = [sys.executable, str(launcher)]
        with (
            served(command, folders[1]) as one,
            served(command, folders[2]) as two,
            calling("python", mode, "http", one) as first,
            calling("python", mode, "http", two) as second,
        ):
            answer(page_in(first.call()), cookie="session=ada")
            answer(page_in(second.call()), cookie="session=ada")
            assert json.loads(first.call()["content"][0]["text"]) == {"erased": "staging"}
            assert "was not run again" in texts(second.call())
    assert effects.read_text() == "erased staging\n"
