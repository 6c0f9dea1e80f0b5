"""Clients of a cluster of three brokers in three zones."""
