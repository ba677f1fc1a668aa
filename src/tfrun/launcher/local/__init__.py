"""The agent of this machine."""
