"""What outlives a worker: snapshots, who keeps them, and how workers agree on one of them."""
