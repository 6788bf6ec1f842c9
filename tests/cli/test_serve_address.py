"""Addresses become sockets that listen, or an error that says why not."""

import contextlib
import socket

import click
import pytest
from click.testing import CliRunner

from antiphon.cli import commands
from antiphon.cli.serve import ListenAddress, listen


@contextlib.contextmanager
def listening(host, port=0):
    sockets = listen(ListenAddress(host=host, port=port))
    try:
        yield sockets
    finally:
        for opened in sockets:
            opened.close()


def test_all_addresses_of_a_host_get_the_same_free_port():
    with listening("localhost") as sockets:
        assert len({opened.getsockname()[1] for opened in sockets}) == 1
        for opened in sockets:
            socket.create_connection(opened.getsockname()[:2], timeout=5).close()


def test_the_url_tells_the_port_that_was_found():
    with listening("127.0.0.1") as sockets:
        port = sockets[0].getsockname()[1]
        assert ListenAddress(host="127.0.0.1", port=0).url(sockets) == f"http://127.0.0.1:{port}/mcp"
        assert ListenAddress(host="::1", port=0, path="/x").url(sockets) == f"http://[::1]:{port}/x"


def test_requests_may_name_the_host_that_is_served_unless_it_is_every_host():
    assert ListenAddress(host="192.168.1.5", port=0).names == ["192.168.1.5"]
    assert ListenAddress(host="::1", port=0).names == ["[::1]"]
    for host in ("0.0.0.0", "::"):
        assert ListenAddress(host=host, port=0).names == []


def test_a_taken_port_is_named_and_nothing_is_left_open():
    with listening("127.0.0.1") as sockets:
        port = sockets[0].getsockname()[1]
        with pytest.raises(click.ClickException, match=f"Port {port} on localhost is in use"):
            listen(ListenAddress(host="localhost", port=port))


@pytest.mark.parametrize("host", ["nowhere.invalid", "x" * 300, "."])
def test_a_host_that_does_not_exist_is_named(host):
    with pytest.raises(click.ClickException, match="There is no host"):
        listen(ListenAddress(host=host, port=0))


def test_an_address_of_another_machine_is_refused():
    # 192.0.2.0/24 is for documentation (RFC 5737): no machine has an address in it.
    with pytest.raises(click.ClickException, match="Cannot listen on port 0 of "):
        listen(ListenAddress(host="192.0.2.1", port=0))


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--allow-host", "mcp.example.com"], ["--workers", "2"]])
def test_a_server_that_asks_at_this_machine_is_not_served_to_others(options, tmp_path):
    file = tmp_path / "desk.py"
    file.write_text("from antiphon import Browser, Server\n\napp = Server('desk', elsewhere=Browser())\n")
    told = CliRunner().invoke(commands, ["serve", str(file), "--http", "--port", "0", *options])
    assert told.exit_code == 2
    assert "Browser() asks" in told.output
    assert "Traceback" not in told.output
