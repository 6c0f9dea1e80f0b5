"""Snapshots of clusters' metadata stores, on schedule."""
