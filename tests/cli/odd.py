"""A server that takes liberties with the protocol: forms beyond what it allows, and lists that it does not know."""

import json
import sys

FORM = {
    "type": "object",
    "properties": {
        "place": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["place", "sizes"],
}
ASKED = {"odd": {"method": "elicitation/create", "params": {"requestedSchema": FORM}}}


def answer(message):
    params = message["params"]
    match message["method"]:
        case "tools/list":
            return {
                "tools": [{"name": "ask", "inputSchema": {"type": "object"}}, {"name": "strange", "inputSchema": {}}]
            }
        case "tools/call" if params["name"] == "ask" and "inputResponses" not in params:
            return {"resultType": "input_required", "inputRequests": ASKED, "requestState": "s"}
        case "tools/call" if params["name"] == "ask":
            text = json.dumps(params["inputResponses"]["odd"])
            return {"content": [{"type": "text", "text": text}], "resultType": "complete"}
        case "tools/call":
            return {"content": [], "resultType": "strange"}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message)
        reply = {"error": {"code": -32601, "message": "No"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) + "\n")
        sys.stdout.flush()
