"""How processes of one machine are tied to each other: ancestry, signals, channel, progress."""
