"""Snapshots of the metadata store in a bucket."""
