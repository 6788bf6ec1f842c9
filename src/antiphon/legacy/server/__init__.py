"""Serve clients of the 2025 revisions."""
