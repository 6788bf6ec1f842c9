"""Serves the samples, calls them over HTTP, and prints what goes over the wire.

Run it:  make demo
"""

import http.client
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

from antiphon.rounds.seal import generate_key

HERE = Path(__file__).resolve().parent
PATIENCE = 20.0
"""Seconds that anything may take before it has failed."""
WIDTH = 72

Json = dict[str, Any]


class DemoFailed(Exception):
    """Says what did not work."""


# --- a server in a process of its own -------------------------------------------------------------------------------


class Instance:
    """One server, on a free port."""

    def __init__(self, name: str, file: str, **environment: str) -> None:
        self.name = name
        self._file = file
        self._process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", "serve", str(HERE / file), "--http", "--port", "0"],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ids = 0

    def wait(self) -> None:
        """Until it says where it serves."""
        assert self._process.stderr is not None
        printed = ""
        impatience = threading.Timer(PATIENCE, self._process.kill)
        impatience.start()
        try:
            while line := self._process.stderr.readline():
                printed += line
                found = re.search(r"http://([^/]+)(/\S*)", line)
                if found:
                    self._host, self._path = found.groups()
                    say(f"$ antiphon serve examples/{self._file} --http --port 0")
                    say(line.strip())
                    return
        finally:
            impatience.cancel()
        raise DemoFailed(f"examples/{self._file} did not start. It said:\n{printed or '(nothing)'}")

    def request(self, method: str, params: Json, capabilities: Json | None = None) -> Json:
        """Send one message, and give back the reply."""
        self._ids += 1
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "demo", "version": "1.0"},
            "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        }
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
        }
        target = params.get("name") or params.get("uri")
        if target:
            headers["Mcp-Name"] = target
        connection = http.client.HTTPConnection(self._host, timeout=PATIENCE)
        try:
            connection.request("POST", self._path, json.dumps(message), headers)
            reply: Json = json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException) as fault:
            raise DemoFailed(f"{method} got no answer from {self._host}: {fault!r}") from fault
        finally:
            connection.close()
        return reply

    def result(self, method: str, params: Json, capabilities: Json | None = None) -> Json:
        reply = self.request(method, params, capabilities)
        if "result" not in reply:
            raise DemoFailed(f"{method} was refused: {reply.get('error')}")
        result: Json = reply["result"]
        return result

    def end(self) -> None:
        """Ask it to stop, and do not wait."""
        self._process.terminate()

    def stop(self) -> None:
        self.end()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


# --- saying what happens --------------------------------------------------------------------------------------------


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def say(text: str) -> None:
    print(textwrap.indent(text, "  "))


def sent(to: Instance, what: str, **more: object) -> None:
    _exchanged("-->", to, what, more)


def got(of: Instance, what: object, **more: object) -> None:
    _exchanged("<--", of, what if isinstance(what, str) else short(what), more)


def _exchanged(arrow: str, instance: Instance, what: str, more: dict[str, object]) -> None:
    say(f"{arrow} {instance.name}  {what}")
    for name, value in more.items():
        say(f"{'':{len(instance.name) + 6}}{name}: {short(value)}")


def short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 24]}... ({len(text)} characters)"


# --- the demonstration ----------------------------------------------------------------------------------------------


def show_notes(notes: Instance) -> None:
    title("1. A server that keeps notes")
    notes.wait()
    sent(notes, "server/discover")
    got(notes, notes.result("server/discover", {})["capabilities"])
    sent(notes, "tools/list")
    for tool in notes.result("tools/list", {})["tools"]:
        got(notes, f"{tool['name']}: {tool['description']} Takes {', '.join(tool['inputSchema']['properties']) or '-'}")
    arguments = {"title": "Milk", "body": "Two litres."}
    sent(notes, f"tools/call add {json.dumps(arguments)}")
    added = notes.result("tools/call", {"name": "add", "arguments": arguments})["structuredContent"]
    got(notes, added)
    sent(notes, f"resources/read {added['uri']}")
    got(notes, repr(notes.result("resources/read", {"uri": added["uri"]})["contents"][0]["text"]))
    sent(notes, 'tools/call add {"title": 7}')
    got(notes, notes.result("tools/call", {"name": "add", "arguments": {"title": 7}})["content"][0]["text"])


def show_asking(first: Instance, second: Instance) -> None:
    title("2. A tool that asks, on two instances that share nothing but a key")
    first.wait()
    second.wait()
    call = {"name": "deploy", "arguments": {"env": "prod"}}
    can_be_asked: Json = {"elicitation": {"form": {}}}

    sent(first, 'tools/call deploy {"env": "prod"}')
    asked = first.result("tools/call", call, can_be_asked)
    question = asked["inputRequests"]["confirm"]["params"]
    got(first, asked["resultType"], confirm=question["message"], requestState=asked["requestState"])

    first.stop()
    say(f"... {first.name} is stopped. It kept nothing; all there is to know is in the token.")
    say("... The user thinks about it, and ticks the box.")

    answers = {"confirm": {"action": "accept", "content": {"confirm": True}}}
    again = {**call, "inputResponses": answers, "requestState": asked["requestState"]}
    sent(second, 'tools/call deploy {"env": "prod"}', inputResponses=answers, requestState=asked["requestState"])
    done = second.result("tools/call", again, can_be_asked)
    got(second, f"{done['resultType']}: {done['content'][0]['text']}")

    title("3. The same token, for a call that nobody was asked about")
    elsewhere = {**again, "arguments": {"env": "staging"}}
    sent(second, 'tools/call deploy {"env": "staging"}', inputResponses=answers, requestState=asked["requestState"])
    reply = second.request("tools/call", elsewhere, can_be_asked)
    if "error" not in reply:
        raise DemoFailed(f"a token was accepted for a call that it does not belong to: {reply}")
    got(second, f"error {reply['error']['code']}: {reply['error']['message']}")


def main() -> int:
    begun = time.monotonic()
    key = generate_key(os.urandom(32))
    instances: list[Instance] = []
    try:
        instances.append(Instance("notes", "notes.py"))
        instances.extend(Instance(name, "asking/deploy.py", ANTIPHON_KEYS=key) for name in ("A", "B"))
        notes, first, second = instances
        show_notes(notes)
        show_asking(first, second)
    except DemoFailed as fault:
        print(f"\nThe demonstration failed: {fault}", file=sys.stderr)
        return 1
    finally:
        for instance in instances:
            instance.end()
        for instance in instances:
            instance.stop()
    print(f"\nDone in {time.monotonic() - begun:.1f} s; every server is stopped.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
