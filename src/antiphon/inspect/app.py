"""The application behind the page: its files, and an API that only the holder of the secret may use."""

import asyncio
import hmac
import secrets
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Final

import msgspec

from antiphon.errors import AntiphonError
from antiphon.escaping import compact
from antiphon.http.exchange import Application, Receive, Scope, Send
from antiphon.inspect import exports, safety
from antiphon.inspect.inspector import Absent, Inspector, Unfit
from antiphon.testing import report
from antiphon.testing.cassette.http import LocalApp, body_of, respond, when_gone
from antiphon.types import JsonObject
from antiphon.uri import Template

STATIC: Final = Path(__file__).parent / "static"
SHARED: Final = Path(report.__file__).parent / "conversation.css"
"""The cards of a conversation, which the test kit's report draws as well."""
MAX_BODY: Final = 4 * 1024 * 1024
_JSON: Final = "application/json"
_COMPLETED: Final = ("prompt", "template", "argument", "value", "known")
_KINDS: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src data: blob:;"
    " connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = [
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
]


class InspectApp(LocalApp):
    """An ASGI application. ``user`` is who answers on the page of the inbox, if the inspector has one."""

    def __init__(self, inspector: Inspector, *, secret: str, hosts: Iterable[str] = (), user: str = "") -> None:
        super().__init__(hosts=hosts)
        self._inspector = inspector
        self._secret = secret.encode()
        self._inbox: Application | None = None
        # A browser sends no Authorization with a link, and a cookie to every port: the path itself is the secret.
        self._inbox_root = f"/inbox/{secrets.token_urlsafe(32)}"
        if inspector.inbox is not None:
            self._inbox = inspector.inbox.asgi(principal=lambda _: user or None, hosts=[*hosts])
            inspector.inbox_path = f"{self._inbox_root}/"

    def close(self) -> None:
        self._inspector.feed.close()

    async def serve(self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send) -> None:
        verb, path = scope["method"], scope["path"]
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            await respond(send, 403, "Another page may not ask for this", headers=_HEADERS)
        elif self._inbox is not None and path.startswith(f"{self._inbox_root}/"):
            await self._inbox({**scope, "root_path": self._inbox_root}, receive, send)
        elif not path.startswith("/api/"):
            await _file(verb, path, send)
        elif not hmac.compare_digest(headers.get("authorization", "").encode(), b"Bearer " + self._secret):
            await _say(send, 401, {"error": "The key is missing or wrong: open the address that was printed"})
        elif path == "/api/events":
            await self._events(receive, send)
        else:
            await self._answer(verb, path, headers, receive, send)

    async def _answer(self, verb: str, path: str, headers: dict[str, str], receive: Receive, send: Send) -> None:
        try:
            given = await _given(verb, headers, receive)
            status, found = 200, await self._found(verb, path.removeprefix("/api/").strip("/").split("/"), given)
        except Absent as fault:
            status, found = 404, {"error": str(fault)}
        except Unfit as fault:
            status, found = 409, {"error": str(fault)}
        except (ValueError, TypeError, KeyError) as fault:
            told = f"{fault.args[0]!r} is missing" if isinstance(fault, KeyError) else str(fault)
            status, found = 400, {"error": told}
        except (AntiphonError, OSError) as fault:
            status, found = 502, {"error": str(fault)}
        await _say(send, status, found)

    async def _found(self, verb: str, path: list[str], given: JsonObject) -> object:
        inspector = self._inspector
        match verb, path:
            case "GET", ["state"]:
                return inspector.state()
            case "GET", ["offers"]:
                return inspector.offers
            case "GET", ["traffic"]:
                return {"frames": [msgspec.to_builtins(frame) for frame in inspector.loose_frames()]}
            case "POST", ["restart"]:
                await inspector.restart()
                return inspector.state()
            case "POST", ["complete"]:
                return await inspector.complete({name: given[name] for name in _COMPLETED if name in given})
            case "POST", ["subscriptions"]:
                inspector.subscribe(str(given["uri"]), on=given["on"] is True)
                return {"subscriptions": inspector.subscriptions}
            case "POST", ["calls"]:
                call = await inspector.begin(*_call(given), era=given.get("era"))
                return inspector.shown(call.id)
            case _, ["calls", id_, *rest]:
                return await self._of_call(verb, id_, rest, given)
            case _:
                raise Absent("There is nothing here")

    async def _of_call(self, verb: str, id_: str, path: list[str], given: JsonObject) -> object:
        inspector = self._inspector
        match verb, path:
            case "GET", []:
                return inspector.shown(id_)
            case "POST", ["answer"]:
                try:
                    inspector.call(id_).answer(int(given["round"]), _object(given["answers"]))
                except ValueError as fault:
                    raise Unfit(str(fault)) from None
                return inspector.shown(id_)
            case "POST", ["cancel"]:
                await inspector.call(id_).cancel()
                return inspector.shown(id_)
            case "POST", ["fork"]:
                answers = None if given.get("answers") is None else _object(given["answers"])
                fork = await inspector.fork(id_, int(given.get("round", 0)), given["how"], answers)
                return inspector.shown(fork.id)
            case "POST", ["later"]:
                return await inspector.later(id_)
            case "POST", ["replay-safety"]:
                return await safety.check(inspector.checked(id_), inspector.spot)
            case "GET", ["export", kind]:
                return exports.export(kind, inspector.call(id_), inspector.spot)
            case _:
                raise Absent("There is nothing here")

    async def _events(self, receive: Receive, send: Send) -> None:
        fields = [(b"content-type", b"text/event-stream"), *((n.encode(), v.encode()) for n, v in _HEADERS)]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        task = asyncio.current_task()
        assert task is not None
        events = self._inspector.feed.stream()
        with when_gone(receive, task.cancel):
            async with aclosing(events):
                async for event in events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _say(send: Send, status: int, data: object) -> None:
    await respond(send, status, compact(data), _JSON, _HEADERS)


async def _file(verb: str, path: str, send: Send) -> None:
    """Send a file of the page. Only names that are there are looked for, so none leads elsewhere."""
    name = "index.html" if path == "/" else path.removeprefix("/static/")
    file = next((each for each in (*STATIC.iterdir(), SHARED) if each.name == name and each.is_file()), None)
    if file is None or verb not in {"GET", "HEAD"}:
        await respond(send, 404, "There is nothing here", headers=_HEADERS)
        return
    await respond(send, 200, file.read_bytes(), f"{_KINDS[file.suffix]}; charset=utf-8", _HEADERS)


async def _given(verb: str, headers: dict[str, str], receive: Receive) -> JsonObject:
    """Return the JSON object that a request carries."""
    if verb != "POST":
        return {}
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise ValueError(f"A POST carries JSON: its Content-Type must be {_JSON}")
    body = await body_of(receive, MAX_BODY)
    if body is None:
        raise ValueError(f"A request has at most {MAX_BODY:,} bytes")
    try:
        return _object(msgspec.json.decode(body or b"{}"))
    except (msgspec.MsgspecError, RecursionError) as fault:
        raise ValueError(f"This is not JSON: {fault}") from None


def _object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError("An object is needed here")  # noqa: TRY004 -- the page gets it as a 400, with its text
    return value


def _call(given: JsonObject) -> tuple[str, JsonObject]:
    """Return the method and the parameters of a call; a template is filled in."""
    template = given.get("template")
    if template is None:
        return str(given["method"]), _object(given.get("params", {}))
    return "resources/read", {"uri": Template(str(template)).expand(**_object(given.get("variables", {})))}
