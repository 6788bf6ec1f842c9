"""The ceiling: an ASGI app that decodes the JSON and answers a constant, under our HTTP or uvicorn's."""

from typing import Any

import msgspec
from serving import main

decode = msgspec.json.Decoder().decode
ANSWER = (
    b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",'
    b'"content":[{"type":"text","text":"hello, bench"}],"structuredContent":{"result":"hello, bench"}}}'
)
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())],
}
BODY = {"type": "http.response.body", "body": ANSWER}


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    decode(body)
    await send(START)
    await send(BODY)


def http() -> Any:
    return app


def serve(port: int) -> None:
    import uvicorn

    from antiphon.transports.serve import SETTINGS

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", lifespan="off", **SETTINGS)


if __name__ == "__main__":
    main({"uvicorn": http}, serve=serve)
