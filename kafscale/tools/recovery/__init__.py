"""`kafscale recover`: rebuilds metadata from the objects."""
