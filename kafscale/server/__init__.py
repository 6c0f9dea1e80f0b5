"""The TCP server: listeners, connections, frames, and the way from a request to its handler."""
