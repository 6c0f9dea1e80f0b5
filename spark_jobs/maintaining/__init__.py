"""Maintenance of exports' tables: files put together, old rows, snapshots and orphans removed."""
