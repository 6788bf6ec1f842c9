"""Instances for a trial: the one that runs a call, and fresh ones to run it elsewhere."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast

import msgspec

from antiphon import eras
from antiphon.client.client import Client
from antiphon.rounds.seal import Opened
from antiphon.rounds.sealed import Guard
from antiphon.server.invoke import Threads
from antiphon.server.service import Service
from antiphon.testing.connection import Connection
from antiphon.testing.fresh import KEYS, Make, NoFreshInstance, maker, new_key
from antiphon.testing.observer import Unseen
from antiphon.testing.script import Script
from antiphon.transports.link import Link
from antiphon.wire.rev2026 import REVISION


class Instances(msgspec.Struct, frozen=True, kw_only=True):
    """A server to make calls of, and how to have another one like it."""

    client: Client
    service: Service | None = None
    """The server itself, if it is in this process."""
    fresh: Callable[[], Client] | None = None
    """A client of a fresh instance, not yet open."""
    note: str = ""
    """Why there are no fresh instances."""


def is_here(target: object) -> bool:
    """Whether a target is a Server of this process, or makes one."""
    if isinstance(target, Connection):
        target = target.target
    return isinstance(target, Service) or (callable(target) and not isinstance(target, Link))


@asynccontextmanager
async def instances(target: object, script: Script) -> AsyncGenerator[Instances]:
    """A Server, a function that makes one, a command, a URL or a Link: its instances, with the first one open."""
    connection = target if isinstance(target, Connection) else Connection(target=target)
    target = connection.target
    if isinstance(target, Service):
        try:
            make, note = maker(target), ""
        except NoFreshInstance as fault:
            make, note = None, f"Not run on a fresh instance. {fault}"
        async with _here(target, make, script, note) as made:
            yield made
    elif callable(target) and is_here(target):
        make = maker(target)
        async with _here(make(), make, script, "") as made:
            yield made
    else:
        async with _elsewhere(connection, script) as made:
            yield made


@asynccontextmanager
async def _here(first: Service, make: Make | None, script: Script, note: str) -> AsyncGenerator[Instances]:
    borrowed = _borrow(first)

    def fresh() -> Client:
        assert make is not None
        other = make()
        # Whether instances have the same key is for rotation to find out, not for a look at the handler.
        other._guard = first._guard
        return _client(eras.connect(other, era=REVISION), script)

    try:
        async with _client(eras.connect(first, era=REVISION), script) as client:
            yield Instances(client=client, service=first, fresh=None if make is None else fresh, note=note)
    finally:
        borrowed.users -= 1
        if borrowed.users == 0:
            first._guard = borrowed.guard
            first._step_threads = borrowed.threads


def _borrow(service: Service) -> "Repeatable":
    """Make a server ready to run every round several times, and its handlers to be observed."""
    known = service._guard
    if isinstance(known, Repeatable):
        known.users += 1
        return known
    made = Repeatable(known, service._step_threads)
    service._guard = made
    service._step_threads = cast("Threads", Unseen(made.threads))
    # Threads that are started from here on can be observed.
    service._threads.close()
    return made


@asynccontextmanager
async def _elsewhere(connection: Connection, script: Script) -> AsyncGenerator[Instances]:
    """A server behind a connection. One that is started here is given a key, so that it can be started again."""
    target = connection.target
    is_started_here = not isinstance(target, Link) and not str(target).startswith(("http://", "https://"))
    env = {KEYS: new_key(), **(connection.env or {})} if is_started_here else None

    def another() -> Client:
        link = eras.connect(target, headers=connection.headers, env=env, cwd=connection.cwd, era=REVISION)
        return _client(link, script)

    async with another() as client:
        if is_started_here:
            yield Instances(client=client, fresh=another)
        else:
            yield Instances(client=client, note="Not run on a fresh instance: this server was not started here.")


def _client(link: Link, script: Script) -> Client:
    return Client(link, **script.handlers())


class Repeatable:
    """A guard whose tokens may be used again, since every round is run several times."""

    single_use = False

    def __init__(self, guard: Guard, threads: Threads) -> None:
        self.guard = guard
        self.threads = threads
        self.users = 1
        self.ttl = guard.ttl
        self.audience = guard.audience
        self.readable = guard.readable

    def seal(self, payload: bytes, *, bound_to: bytes, now: float, ttl: float | None = None, entropy: bytes) -> str:
        return self.guard.seal(payload, bound_to=bound_to, now=now, ttl=ttl, entropy=entropy)

    def open(self, token: str, *, bound_to: bytes, now: float) -> Opened:
        return self.guard.open(token, bound_to=bound_to, now=now)
