"""A run with everything in it: each status, several rounds, long texts, and a server that means harm."""

from pathlib import Path

from antiphon.testing.suite.model import Check, Outcome, Place, Summary
from antiphon.testing.transcript import Turn

TOKEN = "eyJ0b2tlbiI6InNlY3JldCJ9" * 20
HOSTILE = (
    "\x1b[2J\x1b]0;gone\x07</pre></script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    "\r\n::error::forged\n##[set-output name=x]forged\n%0A]]>&amp;\x00\u202e\ud800\ufffe"
)
DEPLOY = Path("suites/deploy.mcp.yaml")
NOTES = Path("suites/notes.mcp.yaml")


def at(line: int, column: int = 7, file: Path = DEPLOY) -> Place:
    return Place(file=file, line=line, column=column)


def form(message: str, **properties: dict) -> dict:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def accept(**content: object) -> dict:
    return {"action": "accept", "content": content}


def text(words: str, **more: object) -> dict:
    return {"content": [{"type": "text", "text": words}], **more}


def call(name: str, **arguments: object) -> dict:
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}


CONFIRM = form("Deploy shop 2.4.0 to prod?", confirm={"type": "boolean", "description": "Ships at once."})
WHERE = form(
    "Where shall it run?",
    region={"type": "string", "enum": ["eu-west", "us-east"]},
    replicas={"type": "integer", "default": 2, "description": "How many copies."},
    contact={"type": "string", "format": "email"},
)
MODEL = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Name the release."}}],
        "maxTokens": 20,
    },
}

PASSED = Outcome(
    name="deploys after the operator confirms",
    suite="suites/deploy.mcp.yaml",
    place=at(6, 5),
    status="passed",
    era="2026-07-28",
    tags=("smoke",),
    checks=(
        Check(name="text", passed=True, expected="Deployed to prod", actual="Deployed to prod"),
        Check(name="rounds", passed=True, expected=2, actual=2),
        Check(name="asked", passed=True, expected=["confirm"], actual=["confirm"]),
    ),
    turns=(
        Turn(**call("deploy", env="prod"), questions={"confirm": CONFIRM}, seconds=0.0041),
        Turn(
            method="tools/call",
            params={"name": "deploy", "arguments": {"env": "prod"}, "requestState": TOKEN},
            answers={"confirm": accept(confirm=True)},
            result=text("Deployed to prod"),
            seconds=0.0029,
        ),
    ),
    seconds=0.0123,
)
FAILED = Outcome(
    name="asks where, asks a model for a name, and says both",
    suite="suites/deploy.mcp.yaml",
    place=at(16, 5),
    status="failed",
    era="2026-07-28",
    tags=("slow", "model"),
    checks=(
        Check(
            name="text",
            passed=False,
            problem='is "Release: Quiet Harbor\\n...", and not "Release: Quiet Harbour\\n..."',
            expected="Release: Quiet Harbour\nRegion:  eu-west\nCopies:  2\nStatus:  running",
            actual="Release: Quiet Harbor\nRegion:  eu-west\nCopies:  3\nStatus:  running",
            place=at(24, 13),
        ),
        Check(
            name="structured",
            passed=False,
            problem="is not what was expected, in 3 places",
            expected={"region": "eu-west", "replicas": 2, "nodes": [{"id": 1}, {"id": 2}], "url": "https://a.example"},
            actual={"region": "eu-west", "replicas": 3, "nodes": [{"id": 1}, {"id": 2}, {"id": 3}]},
            place=at(25, 19),
        ),
        Check(name="rounds", passed=True, expected=3, actual=3),
        Check(name="asked", passed=True, expected=["where", "name"], actual=["where", "name"]),
    ),
    turns=(
        Turn(**call("provision", service="shop", version="2.4.0"), questions={"where": WHERE}, seconds=0.0032),
        Turn(
            **call("provision", service="shop", version="2.4.0"),
            answers={"where": accept(region="eu-west", replicas=3, contact="ops@example.com")},
            questions={"name": MODEL},
            seconds=0.0048,
        ),
        Turn(
            **call("provision", service="shop", version="2.4.0"),
            answers={"name": {"role": "assistant", "content": {"type": "text", "text": "Quiet Harbor"}, "model": "m"}},
            result=text(
                "Release: Quiet Harbor\nRegion:  eu-west\nCopies:  3\nStatus:  running",
                structuredContent={"region": "eu-west", "replicas": 3, "nodes": [{"id": 1}, {"id": 2}, {"id": 3}]},
            ),
            seconds=0.0214,
        ),
    ),
    log="INFO  provision shop 2.4.0\nINFO  3 nodes in eu-west\nWARNING  'replicas' was 3, the quota is 2\n",
    seconds=0.0411,
)
BROKEN = Outcome(
    name="waits for the queue",
    suite="suites/deploy.mcp.yaml",
    place=at(31, 5),
    status="broken",
    era="2026-07-28",
    turns=(
        Turn(**call("queue"), seconds=0.8),
        Turn(method="tools/call", params={"name": "queue", "requestState": TOKEN}, seconds=10.0),
    ),
    problem="The server did not answer within 10 s.\nIts process is still there; it has printed nothing since.",
    log="\n".join(f"DEBUG  the queue has {number} jobs" for number in range(40, 0, -1)),
    seconds=10.8,
)
SKIPPED = Outcome(
    name="rolls back",
    suite="suites/deploy.mcp.yaml",
    place=at(40, 5),
    status="skipped",
    tags=("slow",),
    problem="needs roots, which this run does not offer",
)
REFUSED = Outcome(
    name="refuses a region that it does not know",
    suite="suites/notes.mcp.yaml",
    place=at(4, 5, NOTES),
    status="passed",
    era="2025-11-25",
    turns=(
        Turn(
            method="resources/read",
            params={"uri": "note://missing"},
            error={"code": -32002, "message": "Resource not found", "data": {"uri": "note://missing"}},
            seconds=0.001,
        ),
    ),
    seconds=0.0016,
)
ATTACKED = Outcome(
    name=f"survives {HOSTILE}",
    suite=f"suites/{HOSTILE}.mcp.yaml",
    place=at(9, 5, NOTES),
    status="failed",
    era="2026-07-28",
    tags=(HOSTILE,),
    checks=(
        Check(name="text", passed=False, problem=HOSTILE, expected="kind", actual=HOSTILE, place=at(12, 3, NOTES)),
        Check(
            name="structured", passed=False, expected={HOSTILE: 1}, actual={HOSTILE: [HOSTILE], "requestState": TOKEN}
        ),
        Check(name="rounds", passed=False, problem="is 3, and not 2", expected=2, actual=3),
    ),
    turns=(
        Turn(
            method=HOSTILE,
            params={"name": HOSTILE, "requestState": TOKEN, HOSTILE: HOSTILE},
            questions={
                HOSTILE: form(HOSTILE, **{HOSTILE: {"type": HOSTILE, "description": HOSTILE, "default": HOSTILE}}),
                "link": {
                    "method": "elicitation/create",
                    "params": {"mode": "url", "message": "Sign in", "url": HOSTILE},
                },
                "odd": {"kind": "string", "description": HOSTILE},
                "no object": 7,
            },
        ),
        Turn(
            method="tools/call",
            params={"name": "x"},
            answers={
                HOSTILE: {"action": HOSTILE, "content": {HOSTILE: HOSTILE}},
                "roots": {"roots": [{"uri": HOSTILE}]},
            },
            result={
                "content": [{"type": "text", "text": HOSTILE}, {"type": "image", "data": "AAAA", "mimeType": HOSTILE}],
                "structuredContent": {HOSTILE: HOSTILE},
                "isError": True,
            },
        ),
    ),
    log=HOSTILE,
)
LONG = Outcome(
    name="reads a long file",
    suite="suites/notes.mcp.yaml",
    place=at(30, 5, NOTES),
    status="failed",
    checks=(
        Check(
            name="text",
            passed=False,
            problem="is not the file",
            expected="\n".join(f"line {number}" for number in range(3_000)),
            actual="\n".join(
                f"line {number}" if number != 1_500 else "line fifteen hundred" for number in range(3_000)
            ),
        ),
    ),
    turns=(Turn(**call("read", path="long.txt"), result=text("x" * 300_000 + "\n" + "y\n" * 5_000), seconds=0.2),),
    seconds=0.3,
)

RUN = Summary(outcomes=(PASSED, FAILED, BROKEN, SKIPPED, REFUSED, LONG), seconds=11.9, started=1_794_823_200.0)
EVERYTHING = Summary(outcomes=(*RUN.outcomes, ATTACKED), seconds=12.1, started=RUN.started)
