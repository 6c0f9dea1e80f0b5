"""The common part of groups whose coordinator assigns the partitions: consumer groups and share groups."""
