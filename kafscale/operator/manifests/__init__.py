"""A cluster's Kubernetes objects, one kind per file. Pure."""
