"""Managed etcds: objects, members, space."""
