"""The ledger of the samples that each step has consumed: written, read, and the proof from it."""
