"""Durable state: checkpoints on disk, written in the background and whole or not at all."""
