"""From a fetch offset to bytes: references, caches, segment loads, read-ahead."""
