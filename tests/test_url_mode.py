"""URL mode, end to end: examples/secret_page.py in two processes that share a file and a key, and nothing else."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from antiphon import Seal, SQLiteStore
from antiphon.rounds.token import binding, generate_key

EXAMPLE = Path(__file__).parents[1] / "examples" / "secret_page.py"
KEY = generate_key(b"u" * 32)
PATIENCE = 30.0
SECRET = "sk-live-7f3a9c51e2"
REFUSED = {"code": -32602, "message": "Invalid or expired requestState"}
CONSENT = {"action": "accept"}
QUESTION = "Enter your API key on our page, then continue."
REMINDER = "The key has not arrived yet. Enter it on our page, then continue."

# As talkative as it gets: what must not be in a log is not in this one either.
SERVE = """
import importlib.util, logging, socket, sys
logging.basicConfig(level=logging.DEBUG)
spec = importlib.util.spec_from_file_location("secret_page", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from antiphon.transports import serve
serve.run(module.asgi, sockets=[socket.socket(fileno=int(sys.argv[2]))], log_level=logging.DEBUG)
"""

Json = dict[str, Any]


class Question(NamedTuple):
    """A round that asks: its one question, and the token to come back with."""

    key: str
    message: str
    url: str
    token: str

    @property
    def ticket(self) -> str:
        return self.url.rpartition("/")[2]


class Instance:
    """One server process: MCP for clients with a token, pages for browsers with a cookie."""

    def __init__(self, directory: Path, name: str) -> None:
        self.said: list[str] = []
        """Every MCP message, as it travelled."""
        self._ids = count(1)
        self._log = directory / f"{name}.log"
        listening = socket.create_server(("127.0.0.1", 0))
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=PATIENCE)
        own = {"STORE": str(directory / "store.db"), "BASE_URL": "https://vault.example"}
        command = [sys.executable, "-c", SERVE, str(EXAMPLE), str(listening.fileno())]
        with listening, self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "ANTIPHON_KEYS": KEY, **own},
                pass_fds=[listening.fileno()],
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait(PATIENCE)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def call(
        self,
        who: dict[str, str],
        asked: Question | None = None,
        answer: Json = CONSENT,
        capabilities: Json | None = None,
    ) -> Json:
        """One leg of the call: the first one, or the one after a question."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities or {"elicitation": {"url": {}}},
        }
        params: Json = {"name": "connect_account", "arguments": {}, "_meta": meta}
        if asked is not None:
            params |= {"requestState": asked.token, "inputResponses": {asked.key: answer}}
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "connect_account"}
        reply = self._client.post("/mcp", json=body, headers={**headers, **who})
        self.said += [json.dumps(body), reply.text]
        return dict(reply.json())

    def ask(self, who: dict[str, str], asked: Question | None = None) -> Question:
        """A leg that asks (again)."""
        result = self.call(who, asked)["result"]
        assert result["resultType"] == "input_required"
        ((key, request),) = result["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        assert request["params"].keys() == {"mode", "message", "url"}
        assert request["params"]["mode"] == "url"
        return Question(key, request["params"]["message"], request["params"]["url"], result["requestState"])

    def look(self, asked: Question, who: dict[str, str]) -> httpx.Response:
        return self._client.get(urlsplit(asked.url).path, headers=who)

    def submit(self, asked: Question, who: dict[str, str], key: str | bytes = SECRET) -> httpx.Response:
        return self._client.post(urlsplit(asked.url).path, headers=who, data={"key": key})


def bearer(user: str) -> dict[str, str]:
    return {"authorization": f"Bearer {user}-token"}


def cookie(user: str) -> dict[str, str]:
    return {"cookie": f"theme=dark; session={user}-token"}


NOBODY: dict[str, str] = {}
ADA, BOB = bearer("ada"), bearer("bob")
ADAS_BROWSER, BOBS_BROWSER = cookie("ada"), cookie("bob")


def end_of(reply: Json) -> tuple[str, bool]:
    """The text of a final result, and whether it is an error."""
    result = reply["result"]
    assert result["resultType"] == "complete"
    return result["content"][0]["text"], result.get("isError", False)


def inside(token: str) -> str:
    """What a token of ada's carries, for those who have the key."""
    bound_to = binding(method="tools/call", name="connect_account", arguments={}, audience="vault", principal="ada")
    return Seal(KEY).open(token, bound_to=bound_to, now=time.time()).payload.decode("latin-1")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vault")


@pytest.fixture(scope="module")
def instances(directory: Path) -> Iterator[tuple[Instance, Instance]]:
    both = Instance(directory, "a"), Instance(directory, "b")
    yield both
    for instance in both:
        instance.stop()


@pytest.fixture
async def store(directory: Path) -> Any:
    """The file that the two processes share."""
    opened = SQLiteStore(directory / "store.db")
    yield opened
    await opened.close()


async def test_a_secret_goes_from_the_page_of_one_instance_to_the_call_on_another_and_nowhere_else(
    instances: tuple[Instance, Instance], store: SQLiteStore
) -> None:
    a, b = instances
    asked = a.ask(ADA)
    assert asked.message == QUESTION
    assert asked.url.startswith("https://vault.example/secret/")
    form = b.look(asked, ADAS_BROWSER)
    assert form.status_code == 200
    assert '<form method="post">' in form.text
    assert "ada" in form.text
    thanks = b.submit(asked, ADAS_BROWSER)
    assert thanks.status_code == 200
    assert end_of(b.call(ADA, asked)) == ("Account connected.", False)

    assert await store.get("key:ada") == SECRET.encode()
    assert asked.token in "".join(a.said)
    assert asked.ticket in inside(asked.token)
    for where in (*a.said, *b.said, a.log, b.log, form.text, thanks.text, inside(asked.token)):
        assert SECRET not in where
    for log in (a.log, b.log):
        assert "tools/call 'connect_account'" in log
        assert asked.token not in log
        assert asked.ticket not in log


def test_the_page_serves_nobody_but_the_user_who_made_the_call(instances: tuple[Instance, Instance]) -> None:
    a, b = instances
    asked = a.ask(ADA)
    for instance in instances:
        for who in (BOBS_BROWSER, NOBODY, cookie("mallory")):
            assert instance.look(asked, who).status_code == 403
            assert instance.submit(asked, who).status_code == 403
    assert b.ask(ADA, asked).message == REMINDER


def test_a_bearer_token_opens_no_page_and_a_cookie_makes_no_call(instances: tuple[Instance, Instance]) -> None:
    a, _ = instances
    assert a.look(a.ask(ADA), ADA).status_code == 403
    for who in (ADAS_BROWSER, NOBODY):
        assert end_of(a.call(who)) == ("Sign in first.", True)


def test_a_link_that_is_passed_on_gives_its_sender_nothing(instances: tuple[Instance, Instance]) -> None:
    a, b = instances
    bobs = a.ask(BOB)
    assert b.look(bobs, ADAS_BROWSER).status_code == 403
    assert b.submit(bobs, ADAS_BROWSER).status_code == 403
    assert a.ask(BOB, bobs).message == REMINDER


def test_an_unfinished_page_is_asked_for_again_until_it_is_done(instances: tuple[Instance, Instance]) -> None:
    a, b = instances
    first = a.ask(ADA)
    second = b.ask(ADA, first)
    third = a.ask(ADA, second)
    assert [first.message, second.message, third.message] == [QUESTION, REMINDER, REMINDER]
    assert first.url == second.url == third.url
    assert b.submit(first, ADAS_BROWSER).status_code == 200
    assert end_of(a.call(ADA, third)) == ("Account connected.", False)


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}])
def test_a_user_who_does_not_open_the_page_connects_nothing(instances: tuple[Instance, Instance], answer: Json) -> None:
    a, b = instances
    assert end_of(b.call(ADA, a.ask(ADA), answer)) == ("No account connected.", False)


def test_agreeing_to_open_the_page_is_not_yet_being_done_there(instances: tuple[Instance, Instance]) -> None:
    a, b = instances
    asked = a.ask(ADA)
    claim = {"action": "accept", "content": {"key": "made up", "done": True}}
    assert b.call(ADA, asked, claim)["result"]["resultType"] == "input_required"


def test_two_calls_of_one_user_have_a_page_each(instances: tuple[Instance, Instance]) -> None:
    a, b = instances
    one, other = a.ask(ADA), b.ask(ADA)
    assert one.url != other.url
    assert b.submit(one, ADAS_BROWSER).status_code == 200
    assert end_of(b.call(ADA, one)) == ("Account connected.", False)
    assert a.ask(ADA, other).message == REMINDER


def test_a_page_serves_once(instances: tuple[Instance, Instance]) -> None:
    a, b = instances
    asked = a.ask(ADA)
    assert a.submit(asked, ADAS_BROWSER).status_code == 200
    assert b.look(asked, ADAS_BROWSER).status_code == 404
    assert b.submit(asked, ADAS_BROWSER, "another").status_code == 404


@pytest.mark.parametrize("key", ["", "k" * 5000])
def test_what_is_no_key_finishes_nothing(instances: tuple[Instance, Instance], key: str) -> None:
    a, b = instances
    asked = a.ask(ADA)
    assert b.submit(asked, ADAS_BROWSER, key).status_code == 400
    assert a.ask(ADA, asked).message == REMINDER


async def test_an_expired_page_is_gone_and_the_call_says_so(
    instances: tuple[Instance, Instance], store: SQLiteStore
) -> None:
    a, b = instances
    asked = a.ask(ADA)
    assert await store.get(f"ticket:{asked.ticket}") == b"ada"
    await store.put(f"ticket:{asked.ticket}", b"ada", ttl=1e-6)
    for instance in instances:
        assert instance.look(asked, ADAS_BROWSER).status_code == 404
        assert instance.submit(asked, ADAS_BROWSER).status_code == 404
    assert end_of(b.call(ADA, asked)) == ("The page has expired. Call again for a new one.", True)


def test_a_page_that_never_was_looks_like_one_that_has_expired(instances: tuple[Instance, Instance]) -> None:
    a, _ = instances
    made_up = Question("url", QUESTION, "https://vault.example/secret/made-up", "")
    assert a.look(made_up, ADAS_BROWSER).status_code == 404


def test_another_users_token_is_refused_like_any_bad_one(instances: tuple[Instance, Instance]) -> None:
    a, b = instances
    asked = a.ask(ADA)
    b.submit(asked, ADAS_BROWSER)
    for instance in instances:
        for who in (BOB, NOBODY):
            assert instance.call(who, asked)["error"] == REFUSED
        assert "requestState refused for tools/call 'connect_account': forged" in instance.log
    assert end_of(a.call(ADA, asked)) == ("Account connected.", False)


def test_a_client_that_opens_no_pages_is_not_asked_to(instances: tuple[Instance, Instance]) -> None:
    a, _ = instances
    error = a.call(ADA, capabilities={"elicitation": {"form": {}}})["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}
