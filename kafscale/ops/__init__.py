"""Observability: metrics, logs, health, the admin HTTP server."""
