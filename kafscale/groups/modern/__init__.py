"""What groups have in common whose coordinator assigns the partitions: consumer groups and share groups."""
