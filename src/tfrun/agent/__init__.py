"""The agent: one process per machine, between the controller and the machine's workers."""
