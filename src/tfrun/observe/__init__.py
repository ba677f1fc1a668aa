"""What a job tells of itself: events, terminal, page, metrics."""
