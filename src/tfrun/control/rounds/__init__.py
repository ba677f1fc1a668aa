"""A round of a job as a state machine: pure, without clocks, sockets or processes."""
