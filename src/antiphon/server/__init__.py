"""Where `async` starts: the Server, its registry, and the Context that a handler holds."""
