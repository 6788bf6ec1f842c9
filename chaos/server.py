"""The server of the chaos run: one tool that asks several questions, with an effect after each answer.

`python server.py FD STORE EFFECTS SKEW MOST`: the socket that it inherits, the URL of its Redis, the file in which each
effect is written down, by how many seconds its clock is wrong, and how many requests it takes at once.
"""

import asyncio
import os
import socket
import sys
import time

from antiphon import Context, RedisStore, Seal, Server
from antiphon.transports import serve

descriptor, store, effects, skew, most = (
    int(sys.argv[1]),
    sys.argv[2],
    sys.argv[3],
    float(sys.argv[4]),
    int(sys.argv[5]),
)
app = Server("chaos", version="1.0.0", store=RedisStore(store), seal=Seal(ttl=900), clock=lambda: time.time() + skew)


@app.tool
async def interview(name: str, questions: int, ctx: Context) -> str:
    """Ask so many questions; after each answer, do something that must not be done twice."""
    answers: list[str] = []
    for number in range(questions):
        answer = (await ctx.elicit(f"{name}: question {number}?", str, key=f"q{number}")).unwrap()
        answers.append(await ctx.step(f"effect {number}", write_down, ctx.flow, number, answer))
    return " ".join(answers)


@app.tool
async def work(milliseconds: int) -> str:
    """Take a while, as a tool that asks a database does."""
    await asyncio.sleep(milliseconds / 1000)
    return "done"


def write_down(flow: str, number: int, answer: str) -> str:
    """Append one line in one piece; return the answer, so that a lost effect shows in the result."""
    file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{flow} {number}\n".encode())
    finally:
        os.close(file)
    return answer


if __name__ == "__main__":
    endpoint = app.asgi(max_requests=most, health=True)
    serve.run(endpoint, sockets=[socket.socket(fileno=descriptor)], log_level=40)
