"""Clusters: what a KafscaleCluster says, and what is made of it."""
