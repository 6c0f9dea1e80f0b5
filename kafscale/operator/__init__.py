"""The Kubernetes operator: clusters, topics, managed etcd and backups as custom resources."""
