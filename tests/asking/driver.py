"""The client's part of a conversation, in memory: it answers what it is asked, and sends the same call again."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from antiphon import Server
from antiphon.auth import Identity
from antiphon.transports.memory import MemoryLink

EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
ABSENT: Any = object()
MAX_ROUNDS = 12

Json = dict[str, Any]
Response = Any | Callable[[Json], Any]

_ids = count(1)


# --- what a user or a client answers -----------------------------------------------------------------------------


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


def decline() -> Json:
    return {"action": "decline"}


def cancel() -> Json:
    return {"action": "cancel"}


def sampled(text: str) -> Json:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "parrot", "stopReason": "endTurn"}


def roots(*uris: str) -> Json:
    return {"roots": [{"uri": uri} for uri in uris]}


def in_turn(*responses: Any) -> Callable[[Json], Any]:
    """Another answer each time the question comes; the last one for good."""
    left = list(responses)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


# --- what it calls -----------------------------------------------------------------------------------------------


def tool(name: str, /, **arguments: Any) -> tuple[str, Json]:
    return "tools/call", {"name": name, "arguments": arguments}


def prompt(name: str, /, **arguments: str) -> tuple[str, Json]:
    return "prompts/get", {"name": name, "arguments": arguments}


def resource(uri: str) -> tuple[str, Json]:
    return "resources/read", {"uri": uri}


# --- how it goes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """What one leg brought: questions with a token, or the end."""

    reply: Json

    @property
    def result(self) -> Json:
        return self.reply.get("result", {})

    @property
    def asks(self) -> bool:
        return self.result.get("resultType") == "input_required"

    @property
    def questions(self) -> Json:
        return self.result.get("inputRequests", {})

    @property
    def token(self) -> str:
        return self.result["requestState"]


@dataclass
class Told:
    """A whole conversation."""

    rounds: list[Round] = field(default_factory=list)

    @property
    def last(self) -> Round:
        return self.rounds[-1]

    @property
    def asked(self) -> list[list[str]]:
        """The names of the questions, round by round."""
        return [sorted(leg.questions) for leg in self.rounds if leg.asks]

    @property
    def messages(self) -> list[list[str]]:
        """What the users read, round by round."""
        return [
            sorted(question["params"].get("message", question["method"]) for question in leg.questions.values())
            for leg in self.rounds
            if leg.asks
        ]

    @property
    def result(self) -> Json:
        assert "result" in self.last.reply, self.last.reply
        return self.last.result

    @property
    def error(self) -> Json:
        assert "error" in self.last.reply, self.last.reply
        return self.last.reply["error"]

    @property
    def failed(self) -> bool:
        """Whether the result is one that tells a model of an error."""
        return self.result.get("isError", False)

    @property
    def text(self) -> str:
        """All text of the final result, wherever a tool, a prompt or a resource puts it."""
        result = self.result
        assert result["resultType"] == "complete", result
        blocks = result.get("content") or result.get("contents") or []
        blocks = blocks or [message["content"] for message in result.get("messages", [])]
        return "".join(block["text"] for block in blocks)


async def leg(
    server: Server,
    method: str,
    params: Json,
    *,
    state: Any = ABSENT,
    responses: Any = ABSENT,
    capabilities: Mapping[str, Any] = EVERYTHING,
    principal: str | None = None,
) -> Round:
    """One request and its reply."""
    sent = _request(method, params, state, responses, capabilities)
    reply = await MemoryLink(server, identity=None if principal is None else Identity(subject=principal)).send(sent)
    assert reply is not None
    assert reply["id"] == sent["id"]
    done = Round(json.loads(json.dumps(reply)))
    if done.asks:
        _check_question(done.result, capabilities)
    return done


async def converse(
    server: Server | Sequence[Server],
    method: str,
    params: Json,
    *,
    answers: Mapping[str, Response] | None = None,
    capabilities: Mapping[str, Any] = EVERYTHING,
    principal: str | None = None,
    max_rounds: int = MAX_ROUNDS,
) -> Told:
    """Call, answer and call again until it is done; several servers take turns, one leg each.

    A question that has no answer here is left unanswered. A callable is given the question and makes the answer.
    """
    servers = [server] if isinstance(server, Server) else list(server)
    told = Told()
    state: Any = ABSENT
    responses: Any = ABSENT
    for number in range(max_rounds):
        done = await leg(
            servers[number % len(servers)],
            method,
            params,
            state=state,
            responses=responses,
            capabilities=capabilities,
            principal=principal,
        )
        told.rounds.append(done)
        if not done.asks:
            return told
        state = done.result.get("requestState", ABSENT)
        responses = _answered(done.questions, answers or {})
    raise AssertionError(f"the conversation did not end within {max_rounds} rounds: {told.asked}")


def _request(method: str, params: Json, state: Any, responses: Any, capabilities: Mapping[str, Any]) -> Json:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "driver", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    body: Json = {**params, "_meta": meta}
    if state is not ABSENT:
        body["requestState"] = state
    if responses is not ABSENT:
        body["inputResponses"] = responses
    # As on a wire: what the server does to its copy does not reach the sender's.
    return json.loads(json.dumps({"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": body}))


def _answered(questions: Json, answers: Mapping[str, Response]) -> Any:
    if not questions:
        return ABSENT
    return {
        name: answers[name](question) if callable(answers[name]) else answers[name]
        for name, question in questions.items()
        if name in answers
    }


def _check_question(result: Json, capabilities: Mapping[str, Any]) -> None:
    """What holds for every result that asks (basic/patterns/mrtr, Server Requirements)."""
    assert result.keys() <= {"resultType", "inputRequests", "requestState", "_meta"}
    assert result.get("inputRequests") or result.get("requestState")
    for question in result.get("inputRequests", {}).values():
        assert question.keys() == {"method", "params"}
        declared = capabilities.get(question["method"].partition("/")[0])
        assert declared is not None
        mode = question["params"].get("mode", "form")
        if question["method"] == "elicitation/create":
            assert mode in declared or (mode == "form" and not declared)
