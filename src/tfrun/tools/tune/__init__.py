"""Tune: the per-worker batch with the highest samples per second that fits in memory."""
