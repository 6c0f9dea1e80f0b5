"""What a cluster consists of in Kubernetes, one kind of object a file; pure."""
