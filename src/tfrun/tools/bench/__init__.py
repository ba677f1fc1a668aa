"""How fast these machines are together: all-reduce, link, scaling."""

KIND = "measured"  # of the report that a job's worker 0 sends
