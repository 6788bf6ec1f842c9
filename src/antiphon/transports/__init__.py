"""I/O shells around a Service: HTTP (ASGI), standard streams, and memory."""
