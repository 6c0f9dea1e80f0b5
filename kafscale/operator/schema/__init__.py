"""The custom resources as Kubernetes knows them."""
