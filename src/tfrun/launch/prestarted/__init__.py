"""Processes that somebody else has started together, of which the first launches the job."""
