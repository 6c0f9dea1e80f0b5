"""The cost of a cluster's requests: reading its metrics, and the arithmetic."""
