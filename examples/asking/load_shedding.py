"""Shedding load: a busy instance gives the call back with its state, and another one goes on.

The flow of SEP-2322. A result with a state and no question sends the client back at once; a load balancer may bring it
to another instance. Only the return style says this: the other two have no use for it, as steps carry the work.
"""

from antiphon import Context, InputRequired, Server, input_required

app = Server("load-shedding", version="1.0.0")

SLICE = 1000
"""How much one instance does before it lets another go on."""


@app.tool
async def sum_of_squares(count: int, ctx: Context) -> int | InputRequired:
    """Add up squares, a slice on each instance."""
    done, total = ctx.state(tuple[int, int]) or (0, 0)
    until = min(done + SLICE, count)
    total += sum(number * number for number in range(done, until))
    return total if until == count else input_required(state=[until, total])


if __name__ == "__main__":
    app.run("http")
