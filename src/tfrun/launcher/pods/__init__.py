"""Jobs in Kubernetes: what a person asks of it, and the manifests."""
