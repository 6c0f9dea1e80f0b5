"""The Kubernetes API: identity, kinds of objects, and the client."""
