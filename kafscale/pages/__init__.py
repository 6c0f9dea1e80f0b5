"""The page for people beside the metrics: what this broker knows of its cluster, rendered without scripts."""
