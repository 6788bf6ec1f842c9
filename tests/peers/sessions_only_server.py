"""A server of sessions that also knows ``server/discover``, as the Go SDK's is over HTTP unless told to be stateless.

It answers discovery with older revisions only, and refuses everything else of the newest one.
"""

import json
import sys

import uvicorn

from antiphon import Context, Server
from antiphon.transports.serve import SETTINGS

OLDER = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]

server = Server("sessions-only", version="1.0.0")


@server.tool
async def paint(ctx: Context) -> str:
    return (await ctx.elicit("Which colour?", str, key="colour")).unwrap()


sessions = server.asgi(legacy="sessions")


async def app(scope, receive, send):
    if scope["type"] != "http":
        return await sessions(scope, receive, send)
    chunks, more = [], True
    while more:
        event = await receive()
        chunks.append(event.get("body", b""))
        more = event.get("more_body", False)
    body = b"".join(chunks)
    if b'"io.modelcontextprotocol/protocolVersion"' in body:
        return await refuse_or_discover(json.loads(body), send)
    given = iter([{"type": "http.request", "body": body}])

    async def again():
        return next(given, None) or await receive()

    return await sessions(scope, again, send)


async def refuse_or_discover(message, send):
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "server/discover":
        about = {"resultType": "complete", "supportedVersions": OLDER, "capabilities": {"tools": {}}, "ttlMs": 0}
        status, kind, answer["result"] = 200, b"text/event-stream", about
        body = f"event: message\ndata: {json.dumps(answer)}\n\n".encode()
    else:
        data = {"supported": OLDER, "requested": "2026-07-28"}
        answer["error"] = {"code": -32022, "message": "unsupported protocol version", "data": data}
        status, kind, body = 400, b"application/json", json.dumps(answer).encode()
    head = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]), **SETTINGS)
