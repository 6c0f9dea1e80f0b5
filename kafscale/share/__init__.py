"""Share groups at the leader of a partition (KIP-932): which member has which records, and which are finished."""
