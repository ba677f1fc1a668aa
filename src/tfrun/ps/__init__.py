"""Parameter servers: the chief schedules, workers compute, servers update each variable once."""
