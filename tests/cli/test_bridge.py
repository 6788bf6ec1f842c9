"""``antiphon bridge``: in processes of its own, over standard streams and HTTP on either side."""

import json
import os
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from antiphon import Accepted, Client
from antiphon.cli import commands
from antiphon.cli.bridge import audience_of, named_targets
from antiphon.testing.servers import new_key

SCRIPT = str(Path(sys.executable).with_name("antiphon"))
SHOP = """
import sys
from antiphon import Context, Server

app = Server("shop")

@app.tool
async def order(count: int, ctx: Context) -> str:
    sure = await ctx.confirm(f"Order {count}?")
    return f"Ordered {count}" if sure else "Nothing ordered"

if __name__ == "__main__":
    app.run("http", port=int(sys.argv[1])) if sys.argv[1:] else app.run()
"""


@pytest.fixture
def shop(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    return str(file)


def client(target, **options):
    return Client(target, elicit=lambda _: Accepted({"confirm": True}), env=dict(os.environ), **options)


@pytest.mark.parametrize("behind", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("before", ["2026-07-28", "legacy"])
async def test_a_command_is_served_on_standard_streams(shop, before, behind):
    async with client([SCRIPT, "bridge", shop, "--era", behind], era=before) as there:
        assert (await there.call_tool("order", {"count": 3})).text == "Ordered 3"
        assert there.server.name == "shop"


@pytest.mark.parametrize("before", ["2026-07-28", "legacy"])
async def test_a_url_is_served_over_http(shop, before, start):
    url = start("serve", shop, "--http", "--port", "0").url()
    front = start("bridge", url, "--http", "--port", "0", "--era", "legacy", "--health").url()
    async with client(front, era=before) as there:
        assert (await there.call_tool("order", {"count": 3})).text == "Ordered 3"


async def test_all_servers_of_a_configuration_get_their_names_as_prefixes(shop, tmp_path):
    servers = {name: {"command": sys.executable, "args": [shop]} for name in ("shop", "old shop")}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {**servers, "gone": {"url": "http://127.0.0.1:9/mcp"}}}))
    async with client([SCRIPT, "bridge", str(file)]) as there:
        assert {tool.name for tool in await there.list_tools()} == {"shop_order", "old-shop_order"}
        assert (await there.call_tool("old-shop_order", {"count": 1})).text == "Ordered 1"


async def test_a_conversation_is_recorded(shop, tmp_path):
    from antiphon.testing.cassette import Player

    tape = tmp_path / "tape.json"
    async with client([SCRIPT, "bridge", shop, "--record", str(tape)]) as there:
        assert (await there.call_tool("order", {"count": 3})).text == "Ordered 3"
    async with client(Player(tape)) as replayed:
        assert (await replayed.call_tool("order", {"count": 3})).text == "Ordered 3"


async def test_each_of_several_servers_is_recorded_in_a_file_of_its_own(shop, tmp_path):
    from antiphon.testing.cassette import Player

    tape = str(tmp_path / "tape.json")
    async with client([SCRIPT, "bridge", f"one={shop}", f"two={shop}", "--record", tape]) as there:
        assert (await there.call_tool("one_order", {"count": 3})).text == "Ordered 3"
        assert (await there.call_tool("two_order", {"count": 4})).text == "Ordered 4"
    for name, count in (("one", 3), ("two", 4)):
        async with client(Player(tmp_path / f"tape-{name}.json")) as replayed:
            assert (await replayed.call_tool("order", {"count": count})).text == f"Ordered {count}"


@pytest.mark.parametrize("behind", ["2026-07-28", "legacy"])
async def test_people_answer_in_an_inbox_what_a_client_cannot_show(shop, behind, antiphon, tmp_path):
    env = {**os.environ, "ANTIPHON_KEYS": new_key()}
    store = f"sqlite:///{tmp_path / 'calls.db'}"
    bridge = [SCRIPT, "bridge", shop, "--era", behind, "--inbox", store]
    async with Client(bridge, env=env) as there:
        first = await there.call_tool("order", {"count": 3})
        assert first.is_error
        assert "a person has to answer first. The question is: Order 3?" in first.text
        listed = antiphon("inbox", "--store", store, env=env)
        assert "order (shop), until" in listed.stdout
        (tmp_path / "yes.yaml").write_text("confirm: true")
        ticket = listed.stdout.split()[0]
        answered = antiphon("inbox", "answer", ticket, "--store", store, "--answers", "yes.yaml", env=env)
        assert answered.returncode == 0, answered.stderr
        assert (await there.call_tool("order", {"count": 3})).text == "Ordered 3"


async def test_an_answer_for_one_server_does_not_count_at_another_with_the_same_inbox(tmp_path, antiphon):
    env = {**os.environ, "ANTIPHON_KEYS": new_key()}
    store = f"sqlite:///{tmp_path / 'calls.db'}"
    for name in ("staging", "production"):
        (tmp_path / f"{name}.py").write_text(SHOP.replace("Ordered", f"{name}: ordered"))
    staging, production = (
        Client([SCRIPT, "bridge", str(tmp_path / f"{name}.py"), "--inbox", store], env=env)
        for name in ("staging", "production")
    )
    async with staging as here, production as there:
        assert "Order 3?" in (await here.call_tool("order", {"count": 3})).text
        ticket = antiphon("inbox", "--store", store, env=env).stdout.split()[0]
        (tmp_path / "yes.yaml").write_text("confirm: true")
        antiphon("inbox", "answer", ticket, "--store", store, "--answers", "yes.yaml", env=env)
        assert "a person has to answer first" in (await there.call_tool("order", {"count": 3})).text
        assert (await here.call_tool("order", {"count": 3})).text == "staging: ordered 3"


def test_answers_count_for_the_same_servers_with_the_same_headers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def configured(token):
        entry = {"url": "https://a.example/mcp", "headers": {"Authorization": token}}
        Path("mcp.json").write_text(json.dumps({"mcpServers": {"one": entry, "two": entry}}))
        return audience("mcp.json:one")

    def audience(*targets, header=()):
        return audience_of(named_targets(targets), header)

    url, ours = "https://a.example/mcp", ("X-Tenant: ours", "Authorization: secret")
    apart = [
        audience(url),
        audience("https://b.example/mcp"),
        audience(f"a={url}"),
        audience(url, "https://b.example/mcp"),
        audience(url, header=ours),
        audience(url, header=("X-Tenant: theirs", "Authorization: secret")),
        configured("Bearer 1"),
        audience("mcp.json:two"),
    ]
    assert len(set(apart)) == len(apart)
    assert audience("https://b.example/mcp", url) == audience(url, "https://b.example/mcp")
    assert audience(url, header=("authorization:secret", "X-Tenant: ours")) == audience(url, header=ours)
    assert configured("Bearer 2") == configured("Bearer 1")
    assert not any("example" in each or "secret" in each for each in apart)


def test_names_come_from_the_targets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("wiki.py").write_text("import antiphon")
    found = named_targets(
        ("https://mcp.crm.example.com/mcp", "wiki.py", f"{sys.executable} -m http.server", "x=wiki.py")
    )
    assert list(found) == ["crm", "wiki", "http", "x"]
    assert list(named_targets(("wiki.py",))) == [""]
    assert list(named_targets(("w=wiki.py",))) == ["w"]
    with pytest.raises(click.UsageError, match="Two servers are called 'wiki'"):
        named_targets(("wiki.py", "wiki.py"))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "Missing argument 'TARGET...'"),
        (["nothing-of-the-kind"], "is not a URL, a Python file"),
        (["http://[x"], "The URL is malformed"),
        (["https://a.example/mcp", "--port", "1"], "--port can only be used with --http"),
        (["https://a.example/mcp", "--era", "ancient"], "era must be"),
        (["https://a.example/mcp", "https://b.example/mcp", "--header", "A: b"], "can only be used with one TARGET"),
        (["https://a.example/mcp", "--http", "--path", "mcp"], "does not begin with /"),
        (["https://a.example/mcp", "--redis", "nowhere"], "--redis"),
        (["https://a.example/mcp", "--inbox", "other://x"], "is no store"),
        (["https://a.example/mcp", "--inbox", "calls.db"], "and has no key: pass keys=, or set ANTIPHON_KEYS"),
        (["https://a.example/mcp", "--inbox", "browser", "--http", "--host", "0.0.0.0"], "this machine"),
    ],
)
def test_what_cannot_be_bridged_is_a_usage_error(arguments, why, monkeypatch):
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    ended = CliRunner().invoke(commands, ["bridge", *arguments])
    assert ended.exit_code == 2
    assert why in " ".join(ended.output.split())


def test_an_entry_with_a_malformed_url_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mcp.json").write_text('{"mcpServers": {"a": {"url": "http://[x"}}}')
    for command in ("bridge", "inspect"):
        ended = CliRunner().invoke(commands, [command, "mcp.json:a"])
        assert ended.exit_code == 2
        assert "mcp.json:a: the URL is malformed" in " ".join(ended.output.split())


@pytest.mark.parametrize(
    ("arguments", "why"), [(["http://[x"], "malformed"), (["wiki.py", "--era", "foo"], "era must be")]
)
def test_what_cannot_be_inspected_is_a_usage_error(arguments, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("wiki.py").write_text("import antiphon")
    monkeypatch.setattr("antiphon.cli.inspect.run", lambda *_, **__: pytest.fail("It was served"))
    ended = CliRunner().invoke(commands, ["inspect", *arguments, "--no-browser", "--port", "0"])
    assert (ended.exit_code, why in ended.output) == (2, True), ended.output
