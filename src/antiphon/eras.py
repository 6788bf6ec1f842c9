"""The only place that knows which protocol era serves whom."""

import asyncio
from typing import Any

from antiphon.server.service import Service
from antiphon.transports.asgi import Endpoint


def asgi(service: Service, **options: Any) -> Endpoint:
    return Endpoint(service, **options)


def stdio(service: Service) -> None:
    """Serve standard streams until they end."""
    from antiphon.transports import stdio  # threads and signals that HTTP does not need

    asyncio.run(stdio.serve(service))
