"""What brokers agree on: the view, registration, claims, leadership, topics and their configs."""
