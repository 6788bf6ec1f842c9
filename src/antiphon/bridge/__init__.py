"""Servers that are served by another: any server to any client, old or new."""
