"""A theatre's box office on the official Python SDK: it asks its customer, a model, and for folders."""

from typing import Annotated, Literal

from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.types import (
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field

server = MCPServer("box-office", version="1.0.0", log_level="ERROR")


class Seats(BaseModel):
    where: Literal["stalls", "balcony"]
    count: int = Field(default=2, ge=1, le=6)


class Sure(BaseModel):
    confirm: bool


def choose_seats(show: str) -> Elicit[Seats]:
    return Elicit(f"Which seats for {show}?", Seats)


def confirm_price(show: str, seats: Annotated[Seats, Resolve(choose_seats)]) -> Elicit[Sure]:
    return Elicit(f"{seats.count} in the {seats.where} for {seats.count * PRICES[seats.where]} euros?", Sure)


PRICES = {"stalls": 60, "balcony": 35}


@server.tool()
async def book(
    show: str, seats: Annotated[Seats, Resolve(choose_seats)], sure: Annotated[Sure, Resolve(confirm_price)]
) -> str:
    """Book seats. What it asks is declared in its parameters, and the second question depends on the first."""
    return f"Booked {seats.count} in the {seats.where} for {show}" if sure.confirm else "Nothing was booked"


def write_greeting(guest: str) -> Sample:
    message = TextContent(type="text", text=f"Welcome {guest} in five words")
    return Sample([SamplingMessage(role="user", content=message)], max_tokens=30)


@server.tool()
async def greet(guest: str, greeting: Annotated[CreateMessageResult, Resolve(write_greeting)]) -> str:
    """Greet a guest with the words of a model."""
    return f"{guest}: {greeting.content.text}"


def find_folders() -> ListRoots:
    return ListRoots()


@server.tool()
async def archive(folders: Annotated[ListRootsResult, Resolve(find_folders)]) -> dict[str, list[str]]:
    """Put the evening's list into every folder there is."""
    return {"written": [f"{root.uri}/evening.csv" for root in folders.roots]}


@server.tool()
async def refund(order: int, ctx: Context) -> str | InputRequiredResult:
    """Refund an order. It asks by returning its questions, two at once."""
    answers = ctx.input_responses
    if not answers:
        reason = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
        return InputRequiredResult(
            input_requests={
                "reason": ElicitRequest(
                    params=ElicitRequestFormParams(message=f"Why is {order} given back?", requested_schema=reason)
                ),
                "bank": ElicitRequest(
                    params=ElicitRequestURLParams(
                        message="Sign in to your bank", url="https://bank.example/sign-in", elicitation_id="1"
                    )
                ),
            },
            request_state=f"refund {order}",
        )
    if any(answer.action != "accept" for answer in answers.values()):
        return "The order stays"
    return f"{ctx.request_state}: {answers['reason'].content['reason']}"


@server.tool()
async def shows() -> dict[str, int]:
    """What is on, and how many seats are left."""
    return {"Hamlet": 12, "Faust": 0}


if __name__ == "__main__":
    server.run()
