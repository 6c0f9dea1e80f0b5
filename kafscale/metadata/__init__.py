"""The metadata store: its Protocol, its keys, and the backends."""
