"""A server in a few lines: a Link whose replies are written down beforehand, and which remembers what was sent."""

import inspect
import json


class Scripted:
    """Replies in order: dicts (results), exceptions (raised), or functions of the message."""

    def __init__(self, *replies, told=()):
        self._replies = list(replies)
        self._told = list(told)
        self.sent = []
        self.headers = []
        self.opened = self.closed = 0

    async def open(self):
        self.opened += 1

    async def close(self):
        self.closed += 1

    async def request(self, message, *, headers, on_notification=None):
        self.sent.append(json.loads(json.dumps(message)))
        self.headers.append(dict(headers))
        for notification in self._told:
            made = on_notification(notification)
            if made is not None:
                await made
        assert self._replies, f"nobody expected {message}"
        reply = self._replies.pop(0) if len(self._replies) > 1 or not callable(self._replies[0]) else self._replies[0]
        if callable(reply):
            reply = reply(message)
            if inspect.isawaitable(reply):
                reply = await reply
        if isinstance(reply, Exception):
            raise reply
        frame = {"jsonrpc": "2.0", "id": message["id"]}
        return {**frame, **reply} if {"result", "error", "id"} & reply.keys() else {**frame, "result": reply}

    @property
    def params(self):
        """What was sent, without what every request has."""
        return [{key: value for key, value in one["params"].items() if key != "_meta"} for one in self.sent]

    @property
    def ids(self):
        return [one["id"] for one in self.sent]


def done(text="done", **more):
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], **more}


def asks(state=None, /, **questions):
    """A round: questions by key, a state, or both."""
    made = {"resultType": "input_required"}
    if questions:
        made["inputRequests"] = questions
    if state is not None:
        made["requestState"] = state
    return made


def form(message="Which?", mode="form", **fields):
    required = [name for name, field in fields.items() if "default" not in field]
    params = {"message": message, "requestedSchema": {"type": "object", "properties": fields, "required": required}}
    if mode is not None:
        params["mode"] = mode
    return {"method": "elicitation/create", "params": params}


def url(message="Open it", where="https://example.com/go"):
    return {"method": "elicitation/create", "params": {"mode": "url", "message": message, "url": where}}


def sampling(text="Hello", **more):
    messages = [{"role": "user", "content": {"type": "text", "text": text}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 10, **more}}


ROOTS = {"method": "roots/list"}
YES = {"type": "boolean"}


def refused(code, message="no", **more):
    return {"error": {"code": code, "message": message, **more}}
