"""Consumer groups: the coordinator, each group's state machine, committed offsets and lag."""
