"""Bytes and revisions: JSON-RPC frames, HTTP header values, one method table per protocol revision."""
