"""The object store: its Protocol, the backends, health, hedged requests and replicas."""
