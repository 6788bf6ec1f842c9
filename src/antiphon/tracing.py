"""Traces: one span for each round of each call, as OpenTelemetry has them.

``app.middleware(traced(tracer))`` with a tracer of your own; without one, the global provider's.
"""

from typing import Any

from antiphon.errors import CannotAsk
from antiphon.server.context import Context
from antiphon.server.middleware import Middleware, Proceed
from antiphon.types import JsonObject

__all__ = ["traced"]


def traced(tracer: Any = None) -> Middleware:
    """A middleware that puts a span around every request and continues the caller's trace."""
    try:
        from opentelemetry import propagate, trace  # an extra, for those who trace
    except ImportError:
        raise ImportError("traced() needs OpenTelemetry: pip install 'antiphon[tracing]'") from None

    used = tracer or trace.get_tracer("antiphon")

    async def span(ctx: Context, proceed: Proceed) -> JsonObject:
        # basic, General fields: traceparent, tracestate and baggage travel in `_meta`.
        carrier = {key: value for key, value in ctx.meta.items() if isinstance(value, str)}
        attributes: dict[str, Any] = {
            "mcp.method.name": ctx.method,
            "mcp.protocol.version": ctx.protocol_version,
            "jsonrpc.request.id": str(ctx.request_id),
            "antiphon.round": ctx.round,
            "antiphon.flow": ctx.flow,
        }
        name = f"{ctx.method} {ctx.name}".strip()
        with used.start_as_current_span(
            name, context=propagate.extract(carrier), kind=trace.SpanKind.SERVER, attributes=attributes
        ) as current:
            try:
                result: JsonObject = await proceed(ctx)
            except CannotAsk as fault:
                # Not an Exception, so OpenTelemetry would take it for success.
                current.set_status(trace.StatusCode.ERROR, fault.message)
                raise
            current.set_attribute("antiphon.result", str(result.get("resultType")))
            if result.get("isError") is True:
                current.set_status(trace.StatusCode.ERROR, "tool_error")
            return result

    return span
