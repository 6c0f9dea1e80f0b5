"""Compares a topic with its table: count and hash per range of offsets."""
