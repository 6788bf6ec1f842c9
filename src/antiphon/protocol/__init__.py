"""The sans-IO engine: a message and its headers become a Call, a Call's outcome becomes a reply."""
