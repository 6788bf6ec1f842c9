"""``antiphon bridge``: serve servers of either era to clients of either era."""

import itertools
import os
import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from antiphon import __version__
from antiphon.app import Server
from antiphon.bridge.connections import connector
from antiphon.bridge.upstream import Upstream
from antiphon.cli.login import auth_for
from antiphon.cli.serve import HttpOptions, http_options, refuse_http_options, serve_here
from antiphon.cli.stores import open_store
from antiphon.cli.target import ServerTarget, era_option, header_option, read_headers, read_targets
from antiphon.rounds.token import Seal
from antiphon.transports.link import Link
from antiphon.wire.jsonrpc import encode

if TYPE_CHECKING:
    from antiphon.server.elsewhere import Elsewhere
    from antiphon.stores.store import Store

_NAMED: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,31})=(?!=)(.+)", re.DOTALL)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9-]+")


@click.command("bridge")
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@header_option
@era_option
@click.option("--redis", metavar="URL", help="Share waiting calls and sessions with other instances.")
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record what the server says; several servers, each into FILE-name.",
)
@click.option(
    "--inbox",
    metavar="STORE",
    help="Where people answer what a client cannot show: redis://HOST:PORT/0, the path of an SQLite file, or 'browser'"
    " for a form on this machine.",
)
@http_options
@click.pass_context
def bridge_command(
    ctx: click.Context,
    /,
    *,
    targets: tuple[str, ...],
    header: tuple[str, ...],
    era: str,
    redis: str | None,
    record: Path | None,
    inbox: str | None,
    http: bool,
    **served: Any,
) -> None:
    """Serve the server at TARGET to any client, old or new.

    TARGET is a URL, a Python file, a command in quotes, or a configuration file such as mcp.json. The bridge speaks the
    revision of each side, over standard streams or HTTP, and passes questions on. With several servers, each name gets
    the server's name as its prefix; name=TARGET chooses that name.

    \b
    antiphon bridge https://old.example.com/mcp
    antiphon bridge "npx some-server" --http --port 8000
    antiphon bridge https://new.example.com/mcp --inbox calls.db
    antiphon bridge crm=https://crm.example.com/mcp wiki="python wiki.py"
    """
    if not http:
        refuse_http_options(ctx, "header", "era", "redis", "record", "inbox")
    named = named_targets(targets)
    if header and len(named) > 1:
        raise click.UsageError("--header can only be used with one TARGET: mcp.json has headers for each server")
    seal = Seal(audience=audience_of(named, header))
    server = Server("antiphon-bridge", version=__version__, seal=seal, store=_store(redis), elsewhere=_elsewhere(inbox))
    for prefix, target in named.items():
        file = record.with_stem(f"{record.stem}-{prefix}") if record is not None and len(named) > 1 else record
        connect = _connector(target, read_headers(header, target), era, file)
        server.add_mount(Upstream(prefix, connect, server, label=prefix or target.text))
    if http:
        options = HttpOptions(**served)
        serve_here(server, options.of_endpoint(), options.address)
    else:
        if os.isatty(0):
            click.echo("Serving on standard streams. Pass --http to serve over HTTP.", err=True)
        server.run()


def named_targets(texts: tuple[str, ...]) -> dict[str, ServerTarget]:
    """The servers of all targets by their prefix, which is empty for a single one without a name."""
    found: dict[str, ServerTarget] = {}
    for text in texts:
        match = _NAMED.fullmatch(text)
        read = read_targets(match[2] if match else text)
        if match and len(read) > 1:
            raise click.UsageError(f"{match[2]} has several servers, which have names: leave out {match[1]}=")
        alone = len(texts) == len(read) == 1
        for own, target in read.items():
            name = match[1] if match else "" if alone else _UNFIT.sub("-", own or target.name)[:32]
            if name in found:
                raise click.UsageError(f"Two servers are called {name!r}: name them, as in {name}2={text!r}")
            found[name] = target
    if not found:
        raise click.UsageError(f"{', '.join(texts)} has no servers")
    return found


def audience_of(named: dict[str, ServerTarget], header: tuple[str, ...]) -> str:
    """What a bridge's tokens and inbox rows are bound to: an answer for one server must not count at another.

    Instances of one bridge have the same. Headers and variables of a configuration are left out: tokens are renewed.
    A digest, since URLs, commands and headers hold secrets.
    """
    reached = [
        [prefix, target.text, target.command, target.folder, target.source] for prefix, target in sorted(named.items())
    ]
    given = sorted((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in header))
    return f"antiphon-bridge {blake2b(encode([reached, given]), digest_size=32).hexdigest()}"


def _connector(target: ServerTarget, headers: dict[str, str], era: str, record: Path | None) -> Callable[[], Link]:
    try:
        connect = connector(
            target.target,
            headers=headers,
            auth=auth_for(target.target, headers),
            env={**os.environ, **target.env},
            cwd=target.folder,
            versions=target.versions,
            era=era,
        )
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None
    return connect if record is None else _recorder(connect, record, headers)


def _recorder(connect: Callable[[], Link], file: Path, headers: dict[str, str]) -> Callable[[], Link]:
    """Record the conversation with a server; each further session with an old one goes into a file of its own."""
    from antiphon.testing.cassette.links import Recorder

    count = itertools.count(1)

    def recorded() -> Link:
        number = next(count)
        return Recorder(connect(), file if number == 1 else file.with_stem(f"{file.stem}-{number}"), headers=headers)

    return recorded


def _elsewhere(place: str | None) -> "Elsewhere | None":
    if place is None:
        return None
    from antiphon.client.inbox import Inbox
    from antiphon.inbox.browser import Browser

    try:
        return Browser() if place == "browser" else Inbox(open_store(place))
    except ValueError as fault:
        raise click.BadParameter(str(fault), param_hint="'--inbox'") from None


def _store(url: str | None) -> "Store | None":
    if url is None:
        return None
    from antiphon.stores.redis import RedisStore

    try:
        return RedisStore(url)
    except ValueError as fault:
        raise click.BadParameter(str(fault), param_hint="'--redis'") from None
