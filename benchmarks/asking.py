"""The cost of a long conversation: the token's size and the CPU time of each leg, as the journal grows.

`python benchmarks/asking.py [--quick] [--strict]`, and a section of run.py.
"""

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
from contender import Contender, Unavailable
from load import Load, LoadError, drive, exchange
from section import run_alone
from threshold import Figures, Threshold

sys.path.insert(0, str(Path(__file__).parent / "servers"))

SERVER = "interview"
COUNTS = (1, 2, 5, 10, 20)
COMPLETION_BYTES = 20_000
CONNECTIONS = 16
WARM_UP = 0.1
BATCH = 0.01
BATCHES = 5

Message = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A conversation: how many questions, and what the client's model says before them."""

    title: str
    questions: int
    completion: str | None = None

    def legs(self) -> Generator[Message, Result, None]:
        """The requests of the conversation in turn; each wants the result of the one before."""
        name = "interview" if self.completion is None else "review"
        more: dict[str, Any] = {}
        while True:
            message = calls.call(name, {"questions": self.questions}, **more)
            message["params"]["_meta"] = _META
            result = yield message
            if result["resultType"] == "complete":
                return
            answers = {key: self._answer(request) for key, request in result["inputRequests"].items()}
            more = {"inputResponses": answers, "requestState": result["requestState"]}

    def _answer(self, request: Message) -> Message:
        if request["method"] == "sampling/createMessage":
            content = {"type": "text", "text": self.completion}
            return {"role": "assistant", "content": content, "model": "parrot", "stopReason": "endTurn"}
        return {"action": "accept", "content": {"value": "an answer"}}


def _prose(size: int) -> str:
    """Text with the redundancy of text: words from a small vocabulary."""
    chance = random.Random(2322)
    vocabulary = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(600)]
    return " ".join(chance.choices(vocabulary, k=size))[:size]


def _noise(size: int) -> str:
    """Text that hardly compresses, such as an image in base64."""
    return "".join(random.Random(2322).choices(string.ascii_letters + string.digits + "+/", k=size))


_CAPABILITIES: dict[str, object] = {"elicitation": {}, "sampling": {}}
_META = {**calls.META, "io.modelcontextprotocol/clientCapabilities": _CAPABILITIES}
PLAIN = {count: Flow(title=f"{count} question{'s' * (count > 1)}", questions=count) for count in COUNTS}
PROSE = Flow(title="20 KB of prose, then 10", questions=10, completion=_prose(COMPLETION_BYTES))
NOISE = Flow(title="20 KB of noise, then 10", questions=10, completion=_noise(COMPLETION_BYTES))
ONE, TEN = PLAIN[1].title, PLAIN[10].title


# --- measuring ---------------------------------------------------------------------------------------------------


def measure(*, rounds: int, seconds: float, unavailable: dict[str, str]) -> Figures:
    """Token bytes and CPU microseconds of every leg, by flow: `answer` in process, `http` in a server under load."""
    flows = {flow.title: Figures() for flow in (*PLAIN.values(), PROSE, NOISE)}
    asyncio.run(_measure_alone(flows, rounds))
    try:
        _measure_http(flows, rounds, seconds)
    except (Unavailable, LoadError) as error:
        unavailable["asking, over HTTP"] = str(error)
    return {"flows": flows, "own_us": asyncio.run(_own_code())}


async def _measure_alone(flows: Figures, rounds: int) -> None:
    service = importlib.import_module(SERVER).server
    messages: dict[tuple[str, int], Message] = {}
    for flow in (*PLAIN.values(), PROSE, NOISE):
        legs = flow.legs()
        message = next(legs)
        tokens: list[int] = []
        try:
            while True:
                messages[flow.title, len(tokens)] = message
                tokens.append(len(message["params"].get("requestState", "")))
                message = legs.send(await _answered(service, message))
        except StopIteration:
            flows[flow.title] |= {"token_bytes": tokens, "answer_us": []}
    samples: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds * BATCHES):
        for leg, message in messages.items():
            samples.setdefault(leg, []).append(await _cost(service, message))
    for (title, _), costs in samples.items():
        flows[title]["answer_us"].append(median(costs))


class _SilentChannel:
    """A channel for handlers that send no notifications."""

    push = None

    async def emit(self, message: object) -> None: ...


_CHANNEL = _SilentChannel()


async def _answered(service: Any, message: Message) -> Result:
    _, reply = await service.answer(message, _CHANNEL, None, None)
    result: Result = json.loads(reply)["result"]
    return result


async def _cost(service: Any, message: Message) -> float:
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
    handler = importlib.import_module(SERVER).interview
    costs: dict[str, float] = {}
    for title, flow in ((ONE, PLAIN[1]), (TEN, PLAIN[10])):
        count, start = 0, time.process_time()
        while time.process_time() < start + 10 * BATCH:
            await handler(flow.questions, _AnsweringContext())
            count += 1
        costs[title] = (time.process_time() - start) / count * 1e6
    return costs


class _AnsweringContext:
    """A context that answers every question at once."""

    async def elicit(self, message: str, shape: object, *, key: str) -> None: ...


class _Interviewer(Contender):
    """The server in a process of its own; what it can be asked are the legs of some flows."""

    def _scenarios(self) -> dict[str, Load]:
        loads: dict[str, Load] = {}
        for flow in (PLAIN[1], PLAIN[10], PROSE):
            legs = flow.legs()
            message, number = next(legs), 1
            try:
                while True:
                    load = Load(port=self.port, request=calls.http(message, self.port), marker=b'"resultType"')
                    loads[f"{flow.title}|{number}"] = load
                    message, number = legs.send(calls.result(exchange(load))), number + 1
            except StopIteration:
                continue
        return loads


def _measure_http(flows: Figures, rounds: int, seconds: float) -> None:
    server = _Interviewer(SERVER)
    samples: dict[str, list[float]] = {}
    try:
        for _ in range(rounds):
            for leg, load in server.loads.items():
                drive(load, connections=CONNECTIONS, seconds=WARM_UP)
                before = server.cpu_seconds()
                done = drive(load, connections=CONNECTIONS, seconds=seconds)
                after = server.cpu_seconds()
                if before is None or after is None:
                    raise Unavailable("this system does not tell the CPU time of another process")
                samples.setdefault(leg, []).append((after - before) / done.requests * 1e6)
    finally:
        server.stop()
    for leg, costs in samples.items():
        flows[leg.rpartition("|")[0]].setdefault("http_us", []).append(median(costs))
    one, ten = samples[f"{ONE}|2"], samples[f"{TEN}|11"]
    flows[TEN]["last_http_ratios"] = [cost / other for other, cost in zip(one, ten, strict=True)]


# --- judging -----------------------------------------------------------------------------------------------------


def _over_http(figures: Figures) -> float | None:
    ratios = figures["asking"]["flows"][TEN].get("last_http_ratios")
    return median(ratios) if ratios else None


def _beyond_own_code(figures: Figures) -> float | None:
    """The same without a transport, and without what the handler itself costs."""
    flows, own = figures["asking"]["flows"], figures["asking"]["own_us"]
    one, ten = (flows[title]["answer_us"][-1] - own[title] for title in (ONE, TEN))
    return ten / one if one > 0 else None


def _straightness(figures: Figures) -> float | None:
    """What a question more costs from ten to twenty, against what it costs from one to ten."""
    last = {count: figures["asking"]["flows"][flow.title]["answer_us"][-1] for count, flow in PLAIN.items()}
    early, late = (last[10] - last[1]) / 9, (last[20] - last[10]) / 10
    return late / early if early > 0 else None


THRESHOLDS = (
    Threshold(
        title="last leg, ten questions / one, over HTTP", figure=_over_http, bound=2, goal=1.5, less_is_better=True
    ),
    Threshold(
        title="last leg, ten / one, library alone", figure=_beyond_own_code, bound=2, goal=1.5, less_is_better=True
    ),
    Threshold(title="a question more, 10 to 20 / 1 to 10", figure=_straightness, goal=1.25, less_is_better=True),
)


# --- reporting ---------------------------------------------------------------------------------------------------


def report(asking: Figures) -> None:
    flows = asking["flows"]
    print("\na conversation, leg by leg: bytes of its token, CPU us without a transport and over HTTP")
    for title in (ONE, TEN, PROSE.title, NOISE.title):
        flow = flows[title]
        print(f"  {title}")
        _row("token", flow["token_bytes"])
        _row("answer us", flow["answer_us"])
        if "http_us" in flow:
            _row("HTTP us", flow["http_us"])
    print(f"growth{'questions':>14}{'largest token':>16}{'last leg us':>14}{'dearest leg us':>17}{'all legs us':>14}")
    for count, flow in PLAIN.items():
        costs, tokens = flows[flow.title]["answer_us"], flows[flow.title]["token_bytes"]
        print(f"{count:>20}{max(tokens):>16}{costs[-1]:>14.0f}{max(costs):>17.0f}{sum(costs):>14.0f}")
    own = asking["own_us"]
    print(f"the handler's own code: {own[ONE]:.1f} us for one question, {own[TEN]:.1f} us for ten")


def _row(title: str, values: list[float]) -> None:
    print(f"    {title:<10}" + "".join(f"{value:>7.0f}" for value in values))


def main() -> int:
    return run_alone(
        "asking",
        about=__doc__,
        measure=measure,
        report=report,
        thresholds=THRESHOLDS,
        usual=(5, 0.4),
        quick=(1, 0.2),
    )


if __name__ == "__main__":
    sys.exit(main())
