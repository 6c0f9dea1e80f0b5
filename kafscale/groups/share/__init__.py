"""Share groups (KIP-932): members that read the same partitions together, as from a queue."""
