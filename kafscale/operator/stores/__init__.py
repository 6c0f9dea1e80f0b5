"""Connections to clusters' metadata stores."""
