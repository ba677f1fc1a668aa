"""Is this cluster fit to train: checks before anything is started."""
