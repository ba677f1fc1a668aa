"""Jobs in Slurm: inside an allocation, under srun, and as a batch script."""
