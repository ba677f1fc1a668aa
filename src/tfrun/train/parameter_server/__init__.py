"""`fit`, `evaluate` and `predict` on parameter servers: the chief schedules, workers compute."""
