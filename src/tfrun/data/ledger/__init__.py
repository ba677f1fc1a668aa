"""Which samples each step has consumed: written, read, and the proof from it."""
