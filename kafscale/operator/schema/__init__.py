"""The custom resources' definitions."""
