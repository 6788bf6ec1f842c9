"""The page of an inbox, as an ASGI application: what waits, what it asks, and the form that answers it.

Plain HTML that needs no script; the script only tells a tab that another person was first. What the page shows comes
from servers that may be hostile, and what it is sent may come from another site: see docs/answer-later.md.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qs, urlsplit

import msgspec

from antiphon.errors import (
    AlreadyAnswered,
    CannotAnswer,
    NotAllowed,
    TicketClosed,
    TicketExpired,
    TicketUnknown,
    TicketWithdrawn,
)
from antiphon.escaping import counted, line, moment
from antiphon.http.exchange import Receive, Scope, Send
from antiphon.inbox import widgets
from antiphon.inbox.rows import Row, Rows
from antiphon.inbox.widgets import data, text
from antiphon.stores.store import StoreError

log = logging.getLogger("antiphon")

Who: TypeAlias = str | Sequence[str] | None
Identify: TypeAlias = Callable[[Scope], Awaitable[Who] | Who]
"""Says who is signed in: a name; a name and groups; None for a visitor who is not."""

MAX_BODY: Final = 2 * 1024 * 1024
_AT_ONCE: Final = 100
"""Rows on one page of the list."""
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_POLICY: Final = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self';"
    b" base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # With no-referrer, browsers send "Origin: null" with a form.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_ASSETS: Final = {"/style.css": "text/css", "/script.js": "text/javascript"}
_STATUS: Final[dict[type[Exception], int]] = {
    CannotAnswer: 422,
    NotAllowed: 403,
    TicketUnknown: 404,
    AlreadyAnswered: 409,
    TicketExpired: 410,
    TicketWithdrawn: 410,
}


class _Person(NamedTuple):
    name: str
    groups: tuple[str, ...]

    def sees(self, row: Row) -> bool:
        return row.permits(self.name, self.groups) or row.on_behalf == self.name


class _Reply(NamedTuple):
    status: int
    body: str
    type: str = "text/html"
    location: str | None = None


class _Refused(Exception):
    """The request is not served."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Request(NamedTuple):
    """What the page needs of a request."""

    verb: str
    root: str
    path: str
    query: str
    headers: dict[bytes, bytes]

    @property
    def here(self) -> str:
        return f"{self.root}{self.path}{f'?{self.query}' if self.query else ''}"


class Page:
    """An ASGI application; `Inbox.asgi` makes it."""

    def __init__(
        self, rows: Rows, *, principal: Identify, page: str | None = None, hosts: Collection[str] = ()
    ) -> None:
        if not callable(principal):
            raise TypeError("principal= is a function of the ASGI scope that returns who is signed in, or None")
        self._rows = rows
        self._principal = principal
        named = {hosts} if isinstance(hosts, str) else set(hosts)
        self._hosts = {_host(name) for name in (*named, *([] if page is None else [urlsplit(page).netloc]))} | _LOCAL
        self._any_host = "*" in named

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            return
        request = _request(scope)
        try:
            reply = await self._answer(request, scope, receive)
        except _Refused as fault:
            reply = _Reply(fault.status, _whole(request, None, "Not served", f"<p>{text(fault)}</p>"))
        except StoreError as fault:
            log.error("the inbox's store failed: %s", fault)  # noqa: TRY400 -- it says all that is known
            reply = _Reply(503, _whole(request, None, "Not now", "<p>The store does not answer. Try again later.</p>"))
        await _send(send, reply, is_head=request.verb == "HEAD")

    async def _answer(self, request: _Request, scope: Scope, receive: Receive) -> _Reply:
        self._check(request)
        if request.path in _ASSETS:
            return _Reply(200, _asset(f"page{request.path[request.path.rindex('.') :]}"), _ASSETS[request.path])
        person = await self._person(scope)
        ticket, _, rest = request.path.strip("/").partition("/")
        if request.verb == "POST" and ticket and not rest:
            return await self._post(request, person, ticket, await _body(receive))
        if request.verb not in {"GET", "HEAD"}:
            raise _Refused(405, "This page is read and sent, nothing else.")
        if not ticket:
            return await self._list(request, person)
        row = await self._row(ticket, person)
        if rest == "state":
            state = {"status": row.status, "round": row.round, "by": line(row.answered_by or "")}
            return _Reply(200, msgspec.json.encode(state).decode(), "application/json")
        if rest:
            raise _Refused(404, "There is no such page.")
        return self._shown(request, person, row)

    def _check(self, request: _Request) -> None:
        """Refuse what comes through another name (DNS rebinding), or from another site."""
        host = request.headers.get(b"host", b"").decode("latin-1").lower()
        if not self._any_host and _host(host) not in self._hosts:
            raise _Refused(403, f"This page is not served as {line(host)[:200]}: pass page= or hosts= to the inbox.")
        if request.verb == "POST":
            origin = request.headers.get(b"origin", b"").decode("latin-1").lower()
            site = request.headers.get(b"sec-fetch-site", b"same-origin")
            if (origin and _site(origin) != host) or site not in {b"same-origin", b"none"}:
                raise _Refused(403, "This form was sent from another site.")

    async def _person(self, scope: Scope) -> _Person:
        try:
            found = self._principal(scope)
            who = await found if inspect.isawaitable(found) else found
        except Exception:
            log.exception("principal= failed, so the request is refused")
            raise _Refused(500, "It could not be found out who you are.") from None
        name, *groups = [who] if isinstance(who, str) else who or [""]
        if not name:
            raise _Refused(401, "Sign in first.")
        return _Person(name, tuple(groups))

    async def _row(self, ticket: str, person: _Person) -> Row:
        try:
            row = await self._rows.get(ticket)
        except TicketUnknown:
            row = None
        if row is None or not person.sees(row):
            raise _Refused(404, "There is no such question here, or none for you.")
        return row

    # --- answering ------------------------------------------------------------------------------------------------

    async def _post(self, request: _Request, person: _Person, ticket: str, body: bytes) -> _Reply:
        row = await self._row(ticket, person)
        try:
            sent = parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=10_000)
            round_ = int(sent["round"][0])
            self._rows.opened(sent["token"][0].encode(), _about(row.id, round_, person))
        except (ValueError, KeyError, StoreError):
            raise _Refused(403, "This form is too old, or not one of this page: go back, load it again.") from None
        try:
            if round_ == row.round:
                answers = widgets.responses(row.questions, sent)
                await self._rows.answer(ticket, round_, answers, person.name, groups=person.groups)
            else:
                await self._rows.answer(ticket, round_, {}, person.name, groups=person.groups)
        except (TicketClosed, NotAllowed, CannotAnswer) as fault:
            row = await self._row(ticket, person)
            return self._shown(request, person, row, fault, sent if isinstance(fault, CannotAnswer) else {})
        return _Reply(303, "", location=request.here)

    # --- drawing --------------------------------------------------------------------------------------------------

    async def _list(self, request: _Request, person: _Person) -> _Reply:
        rows = [row for row in await self._rows.waiting() if person.sees(row)]
        asked = parse_qs(request.query).get("from", ["0"])[0]
        start = min(int(asked), len(rows)) if asked.isdecimal() and len(asked) < 9 else 0
        items = "".join(_item(request, row) for row in rows[start : start + _AT_ONCE])
        body = f"<h1>{counted(len(rows), 'question')} waiting</h1>"
        body += f'<ul class="rows">{items}</ul>' if items else "<p>Nothing waits for an answer.</p>"
        if start + _AT_ONCE < len(rows):
            body += f'<p><a href="{text(request.root)}/?from={start + _AT_ONCE}">Further questions</a></p>'
        return _Reply(200, _whole(request, person, "Inbox", body))

    def _shown(
        self,
        request: _Request,
        person: _Person,
        row: Row,
        fault: Exception | None = None,
        sent: widgets.Sent | None = None,
    ) -> _Reply:
        told = f'<p class="told" role="alert">{text(fault)}</p>' if fault is not None else ""
        body = f"<h1>{text(line(row.name), letters=300)} asks</h1>{told}"
        if row.warning:
            body += f'<p class="warning">{text(row.warning)}</p>'
        if row.status == "waiting" and row.permits(person.name, person.groups):
            body += self._form(row, person, sent or {})
        else:
            body += f"<p>{text(_state(row))}</p>" + "".join(
                f'<div class="question">{text(widgets.summary(asked))}</div>' for asked in row.questions.values()
            )
        body += f"<h2>The call</h2>{_facts(row)}"
        status = 200 if fault is None else _STATUS.get(type(fault), 410)
        return _Reply(status, _whole(request, person, f"{line(row.name)[:100]} asks", body))

    def _form(self, row: Row, person: _Person, sent: widgets.Sent) -> str:
        several = len(row.questions) > 1
        token = self._rows.sealed(b"", _about(row.id, row.round, person)).decode()
        questions = "".join(
            widgets.drawn(number, key, asked, sent, several=several)
            for number, (key, asked) in enumerate(row.questions.items())
        )
        (first, *_) = row.questions.values()
        refusals = "" if several or not widgets.is_elicitation(first) else _REFUSALS
        # One of several questions may be declined while its fields are empty, so the browser does not check them.
        return (
            f'<form method="post" data-round="{row.round}"{" novalidate" if several else ""}>'
            f'<input type="hidden" name="token" value="{token}"><input type="hidden" name="round" value="{row.round}">'
            f'{questions}<div class="buttons"><button class="main" name="action" value="accept">Answer</button>'
            f"{refusals}</div></form>"
        )


_REFUSALS: Final = (
    '<button name="action" value="decline" formnovalidate>Decline</button>'
    '<button name="action" value="cancel" formnovalidate>Cancel</button>'
)


def _item(request: _Request, row: Row) -> str:
    (first, *more) = row.questions.values()
    others = f" (and {counted(len(more), 'other question')})" if more else ""
    about = [
        f"for {text(line(row.who), letters=100)}" if row.who else "",
        f"on behalf of {text(line(row.on_behalf), letters=100)}" if row.on_behalf else "",
        f"since {_time(row.since)}",
        f"until {_time(row.until)}",
    ]
    return (
        f'<li><a href="{text(request.root)}/{row.id}"><b>{text(line(row.name), letters=100)}</b>'
        f' <span class="server">{text(line(row.server), letters=100)}</span>'
        f"<span>{text(widgets.summary(first), letters=300)}{others}</span></a>"
        f'<p class="hint">{", ".join(filter(None, about))}</p></li>'
    )


def _facts(row: Row) -> str:
    facts: dict[str, Any] = {
        "Server": text(line(row.server), letters=300),
        "Call": f"{text(row.method)} {text(line(row.name), letters=300)}",
        "Arguments": data(row.arguments) if row.arguments else "",
        "On behalf of": text(line(row.on_behalf or ""), letters=300),
        "Waits since": _time(row.since),
        "To be answered until": _time(row.until),
        "Who may answer": text(line(row.who), letters=300) if row.who else "all who can sign in here",
        "Answered": "".join(
            f"<div>round {one.round} by {text(line(one.by), letters=300)}, {_time(one.at)}</div>" for one in row.given
        ),
        "Ticket": f"<code>{row.id}</code>",
    }
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{fact}</dd>' for name, fact in facts.items() if fact)}</dl>"


def _state(row: Row) -> str:
    match row.status:
        case "answered":
            return f"Answered by {row.answered_by}. The call goes on when its program asks for the result."
        case "done":
            return f"Answered by {row.answered_by}, and done." if row.given else "Done."
        case "expired":
            return "The time to answer is over."
        case "withdrawn":
            return "This question was withdrawn."
        case _:
            return f"Only {row.who} may answer this."


def _time(seconds: float) -> str:
    exact = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    return f'<time datetime="{exact}">{moment(seconds)}</time>'


def _whole(request: _Request, person: _Person | None, title: str, body: str) -> str:
    root = text(request.root)
    who = f'<span class="person">{text(line(person.name), letters=100)}</span>' if person is not None else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{text(title)}</title><link rel="stylesheet" href="{root}/style.css"><link rel="icon" href="data:,">'
        f'<script src="{root}/script.js" defer></script></head>\n'
        f'<body><header><a href="{root}/">Inbox</a>{who}</header><main>{body}</main></body></html>\n'
    )


def _asset(name: str) -> str:
    return files("antiphon.inbox").joinpath(name).read_text("utf-8")


def _about(ticket: str, round_: int, person: _Person) -> str:
    """What a form's token is bound to: it is good for this row, round and person alone."""
    return f"form {ticket} {round_} {person.name}"


# --- HTTP ---------------------------------------------------------------------------------------------------------


def _request(scope: Scope) -> _Request:
    root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    # Under a mount, some frameworks leave the root in the path, and some do not.
    path = path[len(root) :] if root and f"{path}/".startswith(f"{root}/") else path
    query = scope.get("query_string", b"").decode("latin-1")
    return _Request(scope["method"], root, path or "/", query, dict(scope["headers"]))


def _host(name: str) -> str:
    """Return a host without its port."""
    host, colon, port = name.lower().rpartition(":")
    return host if colon and port.isdecimal() else name.lower()


def _site(origin: str) -> str:
    """Return the host and port of an Origin; empty if it is malformed."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


async def _body(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while (event := await receive())["type"] == "http.request":
        chunks.append(event.get("body", b""))
        size += len(chunks[-1])
        if size > MAX_BODY:
            raise _Refused(413, f"An answer may have {MAX_BODY:,} bytes.")
        if not event.get("more_body"):
            return b"".join(chunks)
    raise _Refused(400, "The form did not arrive whole.")


async def _send(send: Send, reply: _Reply, *, is_head: bool) -> None:
    body = reply.body.encode("utf-8", "backslashreplace")
    headers = [
        *_HEADERS,
        (b"content-type", f"{reply.type}; charset=utf-8".encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if reply.location is not None:
        headers.append((b"location", reply.location.encode("latin-1", "replace")))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


async def _live(receive: Receive, send: Send) -> None:
    while (event := await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": f"{event['type']}.complete"})
