"""`kafscale fsck`: compares metadata with objects, and repairs."""
