"""Processes that were started together, as `srun` and Kubernetes do; the first one launches."""
