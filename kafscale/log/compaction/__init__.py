"""Compaction: of every key the newest record stays. A part of merging, made by the leader of a partition."""
