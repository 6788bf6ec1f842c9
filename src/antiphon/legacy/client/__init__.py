"""Call servers of the 2025 revisions."""
