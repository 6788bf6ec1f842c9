"""Long conversations: what the questions cost, one after the other, and the size of the token that carries them."""

import asyncio
import gc
import importlib
import json
import random
import string
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import calls
from calls import Json
from goals import Goal
from load import LoadError
from measuring import Cell, Figures, Plan, in_process, interleaved, running

NAMES = ("ours", "official", "fastmcp", "typescript")
COUNTS = (1, 2, 5, 10, 20)
MOST = 50
"""Questions of the longest conversation, which is measured in process only."""
COMPLETION_BYTES = 20_000
ANSWER_BYTES = 1_000
BATCH = 0.01


# --- over HTTP, with peers ---------------------------------------------------------------------------------------


def measure(plan: Plan) -> Figures:
    """By server and number of questions: the figures of a request, the largest token, all bytes. Ours in process."""
    counts = (1, 10) if plan.quick else COUNTS
    tokens: dict[str, dict[str, int]] = {}
    traffic: dict[str, dict[str, int]] = {}
    cells: list[Cell] = []
    with running(plan, NAMES) as contenders:
        for count in counts:
            for name, each in contenders.items():
                try:
                    load, largest, bytes_ = calls.conversation(each.port, count)
                except (LoadError, OSError) as fault:
                    plan.cannot(f"{name}|{count}", fault)
                    continue
                tokens.setdefault(name, {})[str(count)] = largest
                traffic.setdefault(name, {})[str(count)] = bytes_
                cells.append(Cell(name=f"{name}|{count}", contender=each, load=lambda load=load: load))
        figures: Figures = {
            "flows": {},
            "cells": interleaved(plan, cells),
            "token_bytes": tokens,
            "wire_bytes": traffic,
        }
    try:
        figures |= in_process("asking.py", str(1 if plan.quick else 5))
    except LoadError as fault:
        plan.cannot("asking, in process", fault)
    return figures


def cpu_of_conversation(figures: Figures, name: str, count: int) -> list[float]:
    """Microseconds of processor time for a whole conversation, each round."""
    return [each * (count + 1) for each in figures["asking"]["cells"][f"{name}|{count}"]["cpu_us"]]


# --- ours in process ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A conversation: how many questions, what is answered, and what the client's model says before them."""

    title: str
    questions: int
    answer: str = "an answer"
    completion: str | None = None

    def legs(self) -> Generator[Json, Json, None]:
        """The requests of the conversation in turn; each wants the result of the one before."""
        name = "interview" if self.completion is None else "review"
        more: Json = {}
        while True:
            result = yield calls.call(name, {"questions": self.questions}, **more)
            if result["resultType"] == "complete":
                return
            answers = {key: self._answer(request) for key, request in result["inputRequests"].items()}
            more = {"inputResponses": answers, "requestState": result["requestState"]}

    def _answer(self, request: Json) -> Json:
        if request["method"] == "sampling/createMessage":
            content = {"type": "text", "text": self.completion}
            return {"role": "assistant", "content": content, "model": "parrot", "stopReason": "endTurn"}
        return {"action": "accept", "content": {"value": self.answer}}


def _noise(size: int) -> str:
    """Text that hardly compresses, such as an image in base64."""
    return "".join(random.Random(2322).choices(string.ascii_letters + string.digits + "+/", k=size))


FLOWS = (
    *(Flow(title=str(count), questions=count) for count in (*COUNTS, MOST)),
    *(Flow(title=f"{count}, 1 KB answers", questions=count, answer=calls.prose(ANSWER_BYTES)) for count in (10, MOST)),
    Flow(title="10 after 20 KB of prose", questions=10, completion=calls.prose(COMPLETION_BYTES)),
    Flow(title="10 after 20 KB of noise", questions=10, completion=_noise(COMPLETION_BYTES)),
)


class _SilentChannel:
    """A channel for handlers that send no notifications."""

    push = None

    async def emit(self, message: object) -> None: ...


_CHANNEL = _SilentChannel()


async def _alone(batches: int) -> Figures:
    """By flow: bytes of each token, and microseconds of each leg, without a transport."""
    service = importlib.import_module("ours").server
    flows: Figures = {}
    messages: dict[tuple[str, int], Json] = {}
    for flow in FLOWS:
        legs = flow.legs()
        message = next(legs)
        tokens: list[int] = []
        try:
            while True:
                messages[flow.title, len(tokens)] = message
                tokens.append(len(message["params"].get("requestState", "")))
                _, reply = await service.answer(message, _CHANNEL, None, None)
                message = legs.send(json.loads(reply)["result"])
        except StopIteration:
            flows[flow.title] = {"token_bytes": tokens, "leg_us": []}
    ends = {(flow.title, flow.questions + (flow.completion is not None)) for flow in FLOWS if flow.questions == MOST}
    short = {leg for leg in messages if not leg[0].startswith(str(MOST))}
    samples: dict[tuple[str, int], list[float]] = {}
    for _ in range(batches):
        for leg in sorted(short | ends):
            samples.setdefault(leg, []).append(await _cost(service, messages[leg]))
    for (title, _), costs in samples.items():
        flows[title]["leg_us"].append(median(costs))
    return {"flows": flows, "own_us": await _own_code()}


async def _cost(service: Any, message: Json) -> float:
    """CPU microseconds of one leg: a token may be sent again, so a leg can be repeated as often as it takes."""
    gc.collect()
    count, clock = 0, time.process_time
    start = clock()
    end = start + BATCH
    while clock() < end:
        for _ in range(10):
            await service.answer(message, _CHANNEL, None, None)
        count += 10
    return (clock() - start) / count * 1e6


async def _own_code() -> dict[str, float]:
    """CPU microseconds of the handler itself, with a context that answers at once."""
    handler = importlib.import_module("ours").interview
    costs: dict[str, float] = {}
    for questions in (1, 10):
        count, start = 0, time.process_time()
        while time.process_time() < start + 10 * BATCH:
            await handler(questions, _AnsweringContext())
            count += 1
        costs[str(questions)] = (time.process_time() - start) / count * 1e6
    return costs


class _AnsweringContext:
    """A context that answers every question at once."""

    async def elicit(self, message: str, shape: object, *, key: str) -> None: ...


# --- judging -----------------------------------------------------------------------------------------------------


def _ten_against_one(figures: Figures) -> list[float]:
    """A conversation of ten questions against ten of one, over HTTP."""
    one, ten = (cpu_of_conversation(figures, "ours", count) for count in (1, 10))
    return [long / (10 * short) for long, short in zip(ten, one, strict=True)]


def _against_official(figures: Figures) -> list[float]:
    ours, theirs = (cpu_of_conversation(figures, name, 10) for name in ("ours", "official"))
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def _last_leg(figures: Figures) -> list[float]:
    """The last leg of ten questions against that of one, without a transport, and without the handler's own work."""
    one, ten = (figures["asking"]["flows"][n]["leg_us"][-1] - figures["asking"]["own_us"][n] for n in ("1", "10"))
    return [ten / one]


def _straightness(figures: Figures) -> list[float]:
    """What a question more costs from ten to twenty, against what it costs from one to ten."""
    one, ten, twenty = (figures["asking"]["flows"][n]["leg_us"][-1] for n in ("1", "10", "20"))
    return [((twenty - ten) / 10) / ((ten - one) / 9)] if ten > one else []


GOALS = (
    Goal(title="ten questions, CPU / ten calls with one", figure=_ten_against_one, at_most=2, bound=3),
    Goal(title="ten questions, CPU / official", figure=_against_official, at_most=1 / 5),
    Goal(title="last leg, ten questions / one, library alone", figure=_last_leg, at_most=2),
    Goal(title="a question more, 10 to 20 / 1 to 10", figure=_straightness, at_most=1.25),
)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent / "servers"))
    print(json.dumps(asyncio.run(_alone(int(sys.argv[1])))))
