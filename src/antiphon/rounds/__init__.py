"""Asking, without I/O: what a round asks, what its token carries, how the next round replays it."""
