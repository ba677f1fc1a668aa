"""Which sample is in which step, and whose it is."""
