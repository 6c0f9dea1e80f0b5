"""Assignors of the consumer protocol (KIP-848): pure functions that share partitions out among members."""
