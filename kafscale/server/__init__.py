"""The TCP server: listeners, connections, frames, and the dispatch of requests to their handlers."""
