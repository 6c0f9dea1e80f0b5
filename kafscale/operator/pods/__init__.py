"""A broker in a pod: where it is, as Kubernetes knows."""
