"""What the requests of a cluster cost: reading its metrics, and the arithmetic."""
