"""The stored part of share groups: where a group begins to read a partition, and how far it has come."""
