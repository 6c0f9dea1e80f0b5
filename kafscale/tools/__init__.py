"""Tools that operators run on a cluster or a bucket: checks, rebuilds, dumps, backups, lifecycle rules."""
