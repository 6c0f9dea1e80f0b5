"""The etcd backend of the metadata store."""
