"""`kafscale backup`: snapshots of the metadata store in the object store."""
