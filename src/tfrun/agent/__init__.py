"""The agent: one process a machine, between the controller and the machine's workers."""
