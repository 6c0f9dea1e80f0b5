"""The state that brokers share: the view, registration, claims, leadership, topics and their configs."""
