"""The client: calls, answers what servers ask, and can leave a call for another day."""
