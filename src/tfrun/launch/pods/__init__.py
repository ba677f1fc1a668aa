"""Jobs in Kubernetes: manifests, and pods that find their launcher."""
