"""Holds a topic and its table against each other: count and hash per range of offsets."""
