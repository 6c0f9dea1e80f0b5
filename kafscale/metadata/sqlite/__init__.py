"""The SQLite backend of the metadata store, for a single broker."""
