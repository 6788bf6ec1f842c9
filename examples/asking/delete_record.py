"""Delete a record after a confirmation, and never without one.

From mcp-lite's page on elicitation.
"""

from dataclasses import dataclass
from typing import Annotated

from antiphon import Accepted, Answer, Ask, Context, InputRequired, Server, ToolError, ask, input_required

app = Server("delete-record", version="1.0.0")

TABLES = {"users": {"u1": "Ada", "u2": "Grace"}}


@dataclass
class Confirm:
    confirmed: bool


def delete_from_database(table: str, record: str) -> str:
    TABLES.get(table, {}).pop(record, None)
    return "Record deleted"


@app.tool
async def delete_record(record_id: str, table_name: str, ctx: Context) -> str:
    """Delete a record."""
    if not ctx.client.supports("elicitation"):
        raise ToolError("Elicitation not supported")
    answer = await ctx.elicit(f'Delete record "{record_id}" from "{table_name}"?', Confirm)
    match answer:
        case Accepted(Confirm(confirmed=True)):
            return delete_from_database(table_name, record_id)
    return "Deletion cancelled"


@app.tool
async def delete_record_returning(record_id: str, table_name: str, ctx: Context) -> str | InputRequired:
    """Delete a record."""
    if ctx.response("confirm").kind == "missing":
        question = ask.form(f'Delete record "{record_id}" from "{table_name}"?', Confirm)
        return input_required({"confirm": question})
    answer = ctx.accepted("confirm", Confirm)
    if answer is not None and answer.confirmed:
        return delete_from_database(table_name, record_id)
    return "Deletion cancelled"


@app.tool
async def delete_record_declaring(
    record_id: str,
    table_name: str,
    confirm: Annotated[Answer[Confirm], Ask('Delete record "{record_id}" from "{table_name}"?')],
) -> str:
    """Delete a record."""
    match confirm:
        case Accepted(Confirm(confirmed=True)):
            return delete_from_database(table_name, record_id)
    return "Deletion cancelled"


if __name__ == "__main__":
    app.run("http")
