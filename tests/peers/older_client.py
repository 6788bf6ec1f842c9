"""The official Python client in its legacy mode through a list of conversations; how each went is printed as JSON.

`python older_client.py CONVERSATIONS http URL`, or `... stdio COMMAND...`: a JSON file that `conversations.py`
describes, and where. A command is given the example's name as its last argument.
"""

import asyncio
import json
import sys
from pathlib import Path

from asking_client import main
from mcp import StdioServerParameters


def server(kind, target, site):
    if kind == "http":
        return f"{target[0]}/{site}/mcp"
    return StdioServerParameters(command=target[0], args=[*target[1:], site])


if __name__ == "__main__":
    file, kind, *target = sys.argv[1:]
    conversations = json.loads(Path(file).read_text())
    told = asyncio.run(main(lambda site: server(kind, target, site), conversations, mode="legacy"))
    sys.stdout.write(json.dumps(told))
