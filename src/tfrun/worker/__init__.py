"""One worker process from its start to its end: bootstrap, zygote, the script."""
