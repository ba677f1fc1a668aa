"""The host collective: sums between the workers' memories, over TCP and through shared memory."""
