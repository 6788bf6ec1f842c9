"""An old server at the far end of a pipe, in a few lines: what it does with a call is the test's own."""

import asyncio
import itertools
import json

from antiphon.legacy.client.link import over_pipe

CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
}
WELCOME = {
    "protocolVersion": "2025-11-25",
    "capabilities": CAPABILITIES,
    "serverInfo": {"name": "old", "version": "1"},
    "instructions": "Be kind.",
}


def text(value="done"):
    return {"content": [{"type": "text", "text": str(value)}]}


class Error(Exception):
    def __init__(self, code, message="no", **more):
        self.body = {"code": code, "message": message, **more}


class Old:
    """Serves calls with ``call(server, message)``: a result, an Error, or None for no reply at all."""

    def __init__(self, call=None, *, welcome=WELCOME):
        self.call = call
        self.welcome = welcome
        self.sent = []
        self.opened = self.closed = 0
        self.tasks = set()
        self._ids = itertools.count(1)
        self._answers = {}
        self._serving = {}

    def link(self, **options):
        return over_pipe(self._laid, **options)

    def _laid(self, receive, lost):
        self.say, self.lost = receive, lost
        return self

    # --- a pipe ---------------------------------------------------------------------------------------------------

    async def open(self):
        self.opened += 1

    async def close(self):
        self.closed += 1
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def send(self, message):
        message = json.loads(json.dumps(message))
        self.sent.append(message)
        if "method" not in message:
            answer = self._answers[message["id"]]
            if not answer.done():
                answer.set_result(message)
        elif "id" in message:
            task = self._serving[message["id"]] = asyncio.ensure_future(self._serve(message))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        elif message["method"] == "notifications/cancelled":
            self._serving[message["params"]["requestId"]].cancel()

    # --- a server -------------------------------------------------------------------------------------------------

    async def _serve(self, message):
        try:
            made = await self._result(message)
        except Error as fault:
            self.say({"jsonrpc": "2.0", "id": message["id"], "error": fault.body})
        else:
            if made is not None:
                self.say({"jsonrpc": "2.0", "id": message["id"], "result": made})

    async def _result(self, message):
        match message["method"]:
            case "initialize":
                return self.welcome(message) if callable(self.welcome) else self.welcome
            case "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe":
                return {}
            case "tools/list":
                return {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]}
            case _ if self.call is not None:
                return await self.call(self, message)
            case _:
                return text()

    async def ask(self, method, params=None, name=None):
        """Push a request, and wait for the response."""
        name = name or f"q{next(self._ids)}"
        self._answers[name] = asyncio.get_running_loop().create_future()
        self.say({"jsonrpc": "2.0", "id": name, "method": method, **({} if params is None else {"params": params})})
        return await self._answers[name]

    def note(self, method, **params):
        self.say({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})

    # --- what it was sent -----------------------------------------------------------------------------------------

    @property
    def methods(self):
        return [message.get("method", "response") for message in self.sent]

    def sent_of(self, method):
        return [message for message in self.sent if message.get("method") == method]


FORM = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


def form(message="Which?", **more):
    return {"message": message, "requestedSchema": FORM, **more}
