"""A broker in a pod: asks Kubernetes for its zone and its external address."""
