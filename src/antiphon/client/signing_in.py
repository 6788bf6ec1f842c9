"""The driver of a sign-in: takes the steps of a flow, and renews a token when it is refused.

A request goes out with the token that is there. A refusal renews it: by refreshing, or by signing in. One task at a
time does that, and a cancelled caller does not stop it; others wait for it and go on with its token. No lock is held
while a request is under way.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import replace

from antiphon.client.keeps import Keep, Memory
from antiphon.client.visits import REDIRECT, Visiting
from antiphon.errors import CallFailed, CallTimeout, SignInFailed
from antiphon.oauth.account import EARLY, Account, Login, Token
from antiphon.oauth.challenge import Challenge, challenge_of
from antiphon.oauth.flow import ENTROPY, finish, refresh, revoke, sign_in
from antiphon.oauth.metadata import is_issuer
from antiphon.oauth.steps import Fetch, Fetched, Goal, Listen, NewKey, Note, Save, Sign, Step, Visit
from antiphon.oauth.urls import Network, is_loopback, may_lead, network_of, network_of_host, origin_of
from antiphon.transports.fetch import fetch

T = TypeVar("T")

log = logging.getLogger("antiphon.auth")

_LOST = ": a process ended while it renewed the last login, and the authorization server takes no token twice"
_LOOK = 1.0
"""Seconds for which a token that is not stale is sent without another look."""
_AGAIN = 10.0
"""Seconds before a refresh that failed is tried again, while the token is still good."""
STEPS = 3
"""Sets of scopes that one request signs in for at most, and refused tokens that it renews."""


class LoginNeeded(SignInFailed):
    """A person has to sign in first. Send them to ``login.url``, and finish with ``client.sign_in(login, callback)``.

    ``login`` is plain data, and secret: ``login.to_json()`` can be finished by another process.
    """

    def __init__(self, login: Login, why: str = "") -> None:
        super().__init__(f"A person has to sign in at {login.issuer} first{why}")
        self.login = login


class Way:
    """What all ways to sign in share, such as OAuth and ClientCredentials."""

    takes_turns = True
    """Whether processes that share a keep wait for the one whose person signs in."""
    extension: str | None = None
    """The extension of the protocol that the way is, which clients declare."""

    def __init__(
        self,
        *,
        issuer: str | None,
        scopes: Iterable[str] | None,
        keep: Keep | None,
        dpop: bool,
        private_networks: bool,
        account: str = "",
    ) -> None:
        self.issuer = issuer
        self.scopes = None if scopes is None else tuple(scopes)
        self.keep: Keep = keep or Memory()
        self.dpop = dpop
        self.private_networks = private_networks
        self.redirect = REDIRECT
        self.account = account
        """Tells accounts at one server apart."""

    def for_server(self, url: str, *, era: str = "auto", patience: float | None = None) -> "SignedIn":
        """Return what signs in to one server."""
        check_secure(url)
        return SignedIn(self, url, era=era, patience=patience)

    async def goal(self, server: str, era: str) -> Goal:
        """Return what the flow needs to know; secrets are read here, when they are needed."""
        raise NotImplementedError

    def visiting(self) -> Visiting | None:
        """Return a person's way to a page and back; None where no person is."""
        return None

    async def sign(self, step: Sign) -> str:
        """Sign a client assertion."""
        raise SignInFailed(f"The authorization server of {step.client_id} wants an assertion, and there is no key")


class SignedIn:
    """The sign-in to one server: its token, and how it is renewed."""

    def __init__(self, way: Way, server: str, *, era: str, patience: float | None) -> None:
        self.server = server
        self._way = way
        self._era = era
        self._patience = patience
        self._key = " ".join(filter(None, (server.rstrip("/"), way.account)))
        self._account: Account | None = None
        self._ready: tuple[Token, float, str] | None = None
        """The token that needs no look at present, until when, and its header line."""
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[bool]] = set()
        self._nonces: dict[tuple[str, str, int], str] = {}
        """The nonces that servers want in proofs, by origin."""
        self.unproven: Token | None = None
        """The token of a sign-in that no request was accepted with yet: another sign-in would give no better one."""
        self._failed: tuple[Token, float] | None = None
        """The token that could not be refreshed, and until when not to try again."""
        self._network: Network | None = network_of_host(server)
        """Where the server is, as its URL or the connection to it told."""

    def attempt(self, *, signs_in: bool = True) -> "SignedInAttempt":
        return SignedInAttempt(self, signs_in=signs_in)

    def ready(self) -> tuple[Token, float, str] | None:
        """Return the token that needs no look and no proof; None if it takes more than that."""
        return self._ready if self._ready is not None and time.time() < self._ready[1] else None

    async def token(self) -> Token | None:
        """Return the token to send, refreshed if it is about to end; None if there is none yet."""
        account = self._account or await self._load()
        token, now = self._token_in(account), time.time()
        if token is None:
            return None
        is_good = token.expires is None or now < token.expires
        has_failed = self._failed is not None and self._failed[0] == token and now < self._failed[1]
        if not token.is_stale(now):
            if token.scheme == "Bearer":
                until = now + _LOOK if token.expires is None else min(now + _LOOK, token.expires - EARLY)
                self._ready = (token, until, authorization_line("Bearer", token.access))
            return token
        if token.refresh is None or (is_good and (self._lock.locked() or has_failed)):
            return token
        try:
            await self._shared(self._renew(token, None, signs_in=False))
        except SignInFailed:
            self._failed = (token, now + _AGAIN)
            if not is_good:
                raise
        return self._account.token if self._account is not None else token

    def _token_in(self, account: Account) -> Token | None:
        """Return a kept token, if it comes from the only issuer that is allowed."""
        return account.token if self._way.issuer is None or is_issuer(account.issuer, self._way.issuer) else None

    def lines(self, token: Token, verb: str) -> str:
        """Return the header lines for a token."""
        made = authorization_line(token.scheme, token.access)
        key = None if self._account is None else self._account.key
        if token.scheme == "DPoP" and key is not None:
            made += f"DPoP: {self._proof(key, verb, self.server, token.access)}\r\n"
        return made

    async def renew(
        self, used: Token | None, challenge: Challenge | None, *, refreshes: bool, signs_in: bool = True
    ) -> bool:
        """Get a better token than the one that was used; return whether that took a sign-in of its own."""
        return await self._shared(self._renew(used, challenge, refreshes=refreshes, signs_in=signs_in))

    def note(self, headers: Mapping[str, str], address: str | None) -> bool:
        """Learn from a refusal where the server is, and which nonce it wants; return whether that is a new one."""
        if address is not None:
            self._network = network_of(address)
        return self._note_nonce(self.server, headers)

    @property
    def nonce(self) -> str | None:
        """The nonce that the server wants in proofs."""
        return self._nonces.get(origin_of(self.server)) if self._nonces else None

    async def finish(self, login: Login, callback: str) -> None:
        """End a login that LoginNeeded carried."""
        if login.server.rstrip("/") != self.server.rstrip("/"):
            raise SignInFailed(f"This login is for {login.server}, and the client for {self.server}")
        self._network = self._network or login.network
        async with self._lock:
            await self._save(await self._drive(finish(login, await self._load(), callback)))

    async def sign_in(self, *, again: bool = False) -> None:
        """Sign in now, rather than when the server asks for it; ``again``: also if a kept login is still good."""
        token = (await self._load()).token
        if again or token is None or token.is_stale(time.time()):
            await self._shared(self._renew(token, None, refreshes=not again))

    async def sign_out(self) -> None:
        """Revoke the tokens, and forget them."""
        async with self._lock, self._way.keep.alone(self._key):
            account = await self._load()
            try:
                await self._drive(revoke(account))
            finally:
                self._account = self._ready = None
                await self._way.keep.drop(self._key)

    async def _shared(self, work: Coroutine[Any, Any, bool]) -> bool:
        """Await work that a cancelled caller does not stop: others wait for it, or a person is in the middle of it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone

    async def _renew(
        self, used: Token | None, challenge: Challenge | None, *, refreshes: bool = True, signs_in: bool = True
    ) -> bool:
        async with self._lock:
            account = self._account or await self._load()
            if _is_better(self._token_in(account), used, challenge):
                return False
            goal = await self._way.goal(self.server, self._era)
            if refreshes and not _needs_scopes(challenge) and await self._refresh(goal, used):
                return False
            return signs_in and await self._sign_in(goal, used, challenge)

    async def _sign_in(self, goal: Goal, used: Token | None, challenge: Challenge | None) -> bool:
        """Sign in, unless another process does; return whether it was this one."""
        async with AsyncExitStack() as turn:
            if self._way.takes_turns and self._way.visiting() is not None:
                async with self._patiently():
                    await turn.enter_async_context(self._way.keep.alone(f"{self._key} login"))
            account = await self._load()
            if _is_better(self._token_in(account), used, challenge):
                return False
            if account.renewal == "lost":
                log.warning("signing in to %s again%s", self.server, _LOST)
            await self._save(await self._drive(sign_in(goal, account, challenge, os.urandom(ENTROPY))))
            self.unproven = None if self._account is None else self._account.token
            return True

    async def _refresh(self, goal: Goal, used: Token | None) -> bool:
        """Refresh the token, unless another process has done so; return whether there is another one now."""
        async with self._way.keep.alone(self._key):
            account = await self._load()
            token = self._token_in(account)
            if token is None or token != used:
                return token is not None
            renewed = await self._drive(refresh(goal, account))
            if renewed is None:
                return False
            await self._save(renewed)
            return renewed.token is not None and renewed.token.refresh is not None

    async def _load(self) -> Account:
        kept = await self._way.keep.get(self._key)
        try:
            self._account = Account() if kept is None else Account.from_json(kept)
        except ValueError:
            self._account = Account()  # written by another version, or damaged: sign in again
        self._network = self._network or self._account.network
        self._ready = None
        return self._account

    async def _save(self, account: Account) -> None:
        # First here: a token that cannot be written is still the only good one.
        self._account = account = replace(account, network=self._network)
        self._ready = None
        await self._way.keep.put(self._key, account.to_json())

    async def _drive(self, flow: Generator[Step, Any, T]) -> T:
        """Take the steps of a flow; return what it returns."""
        visiting = self._way.visiting()
        reply: Any = None
        try:
            while True:
                reply = await self._take(flow.send(reply), visiting)
        except StopIteration as end:
            done: T = end.value
            return done
        finally:
            if visiting is not None:
                await visiting.close()

    async def _take(self, step: Step, visiting: Visiting | None) -> Any:
        match step:
            case Fetch():
                return await self._fetch(step)
            case Listen(preferred):
                return self._way.redirect if visiting is None else await visiting.listen(preferred)
            case Visit(login):
                return await self._visit(login, visiting)
            case Save(issuer, registration):
                account = await self._load()
                others = {key: value for key, value in account.registrations.items() if key != issuer}
                kept = others if registration is None else {**others, issuer: registration}
                return await self._save(replace(account, registrations=kept))
            case Note(account):
                return await self._save(account)
            case NewKey():
                from antiphon.oauth.jose import new_key  # few servers bind tokens

                return new_key()
            case Sign():
                return await self._way.sign(step)

    async def _visit(self, login: Login, visiting: Visiting | None) -> str:
        if visiting is None:
            is_lost = self._account is not None and self._account.renewal == "lost"
            raise LoginNeeded(replace(login, network=self._network), _LOST if is_lost else "")
        async with self._patiently():
            return await visiting.visit(login)

    @asynccontextmanager
    async def _patiently(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._patience):
                yield
        except TimeoutError:
            raise CallTimeout("person", self._patience or 0, "The sign-in was not finished") from None

    async def _fetch(self, step: Fetch) -> Fetched:
        there = network_of_host(step.url)
        if there is not None:
            self._check_network(there, origin_of(step.url)[1])  # a proxy would not tell where it connects to
        for more in (True, True, False):  # a server that always wants another nonce is not asked for ever
            headers = dict(step.headers)
            if step.key is not None:
                headers["DPoP"] = self._proof(step.key, step.verb, step.url)
            try:
                check = partial(self._check_address, step.url)
                reply = await fetch(step.verb, step.url, headers, step.body, check_address=check)
            except CallFailed as fault:
                raise SignInFailed(str(fault)) from None
            # RFC 9449, 8: a server that wants a nonce names it, and gets the request again.
            news = step.key is not None and self._note_nonce(step.url, reply.headers)
            if not (more and news and reply.status == 400 and b"use_dpop_nonce" in reply.body):
                return Fetched(reply.status, reply.body, reply.at)
        raise AssertionError("the last reply is returned")

    def _note_nonce(self, url: str, headers: Mapping[str, str]) -> bool:
        origin, nonce = origin_of(url), headers.get("dpop-nonce")
        if nonce is None or self._nonces.get(origin) == nonce:
            return False
        self._nonces[origin] = nonce
        return True

    def _check_address(self, url: str, address: str) -> None:
        """Refuse to be sent from a public server into a private network."""
        if self._network is None and origin_of(url) == origin_of(self.server):
            self._network = network_of(address)  # the server itself, which was not asked before
        self._check_network(network_of(address), address)

    def _check_network(self, there: Network, address: str) -> None:
        if not self._way.private_networks and not may_lead(self._network or "public", there):
            raise SignInFailed(
                f"The server sends this client to {address}, an address of a private network. If that is right, pass"
                " private_networks=True."
            )

    def _proof(self, key: dict[str, Any], verb: str, url: str, access: str | None = None) -> str:
        from antiphon.oauth.jose import proof  # few servers want proofs

        nonce = self._nonces.get(origin_of(url))
        return proof(key, verb, url, id_=os.urandom(16).hex(), now=time.time(), access=access, nonce=nonce)


class SignedInAttempt:
    """One request. What it may do about refusals: refresh once, sign in once, and once more for each set of scopes."""

    # Set on the class, since few requests are refused.
    _token: Token | None = None
    _nonce: str | None = None
    _may_refresh = True
    _asked: frozenset[tuple[str, ...]] = frozenset()
    _renewals = 0
    _nonces = 3

    def __init__(self, signed_in: SignedIn, *, signs_in: bool) -> None:
        self._signed_in = signed_in
        self._may_sign_in = self._signs_in = signs_in

    async def lines(self, verb: str) -> str:
        ready = self._signed_in.ready()
        if ready is not None:
            self._token = ready[0]
            return ready[2]
        self._token = await self._signed_in.token()
        self._nonce = self._signed_in.nonce
        return "" if self._token is None else self._signed_in.lines(self._token, verb)

    def renewal(self, status: int, headers: Mapping[str, str], address: str | None) -> Awaitable[None] | None:
        challenge = challenge_of(headers.get("www-authenticate"), None if self._token is None else self._token.scheme)
        self._signed_in.note(headers, address)
        news = headers.get("dpop-nonce") not in {None, self._nonce}
        if news and self._nonces and challenge is not None and challenge.error == "use_dpop_nonce":
            self._nonces -= 1
            return asyncio.sleep(0)
        if status == 401:
            if self._token is not None and self._token is self._signed_in.unproven:
                return None
            self._renewals += 1
            may = self._renewals <= STEPS and (self._may_refresh or self._may_sign_in)
            return self._renew(challenge) if may else None
        wanted = challenge.scopes if challenge is not None and _needs_scopes(challenge) else None
        if (
            not self._signs_in
            or wanted is None
            or wanted in self._asked
            or len(self._asked) == STEPS
            or _covers(self._token, wanted)
        ):
            return None
        self._asked |= {wanted}
        return self._renew(challenge)

    async def _renew(self, challenge: Challenge | None) -> None:
        refreshes, self._may_refresh = self._may_refresh, False
        signs_in = self._signs_in
        if await self._signed_in.renew(self._token, challenge, refreshes=refreshes, signs_in=signs_in):
            self._may_sign_in = False

    def accepted(self) -> None:
        """Note that the server took the token."""
        if self._token is self._signed_in.unproven:
            self._signed_in.unproven = None


def _needs_scopes(challenge: Challenge | None) -> bool:
    return challenge is not None and challenge.error == "insufficient_scope"


def _is_better(token: Token | None, used: Token | None, challenge: Challenge | None) -> bool:
    """Whether another caller has got what this one wants."""
    if token is None or token == used:
        return False
    wanted = challenge.scopes if challenge is not None and _needs_scopes(challenge) else None
    return wanted is None or _covers(token, wanted)


def _covers(token: Token | None, wanted: tuple[str, ...]) -> bool:
    return token is not None and token.scopes is not None and set(wanted) <= set(token.scopes)


def authorization_line(scheme: str, token: str) -> str:
    """Return the header line of a token; SignInFailed if HTTP cannot carry it."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise SignInFailed("The token has characters that no token has")
    return f"Authorization: {scheme} {token}\r\n"


def check_secure(url: str) -> None:
    """ValueError for a URL over which a token would travel in the clear."""
    if "@" in urlsplit(url).netloc:
        raise ValueError("auth= signs in, and the URL has a user name in it: use one of them")
    scheme, host, _ = origin_of(url)
    if scheme != "https" and not is_loopback(host):
        raise ValueError(f"auth= needs https, since a token would travel in the clear to {url}")
