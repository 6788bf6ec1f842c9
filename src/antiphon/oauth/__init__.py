"""OAuth 2.1 as MCP uses it, without I/O: challenges, metadata, the flow of a sign-in, tokens. Pure."""
