"""Consumer groups of the newer protocol (KIP-848): the broker assigns the partitions, members reconcile."""
