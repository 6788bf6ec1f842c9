"""The configuration files of MCP hosts: where they are, what they say, and how to change one entry of them."""
