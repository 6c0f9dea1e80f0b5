"""Concurrency: bounded maps, turns on the event loop and on threads."""
