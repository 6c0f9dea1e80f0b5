"""The folder backend of the object store."""
