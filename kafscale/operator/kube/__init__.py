"""The Kubernetes API: who we are there, what there is, and the one door to it."""
