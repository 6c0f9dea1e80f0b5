"""Managed etcds: their members, their space, their objects."""
