"""Jobs in Slurm: an agent on each node of an allocation, batch scripts, requeueing."""
