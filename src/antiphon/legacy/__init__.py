"""The older era: revisions 2024-11-05 to 2025-11-25, as adapters around the modern core."""
