"""The kit that tests MCP programs: import what you need from the module that has it."""
