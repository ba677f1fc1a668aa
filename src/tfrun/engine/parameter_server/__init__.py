"""Parameter servers: each update once, atomic, where the variable is, and rows only."""
