"""What handlers share: the broker as they see it, requests that wait, state between requests."""
