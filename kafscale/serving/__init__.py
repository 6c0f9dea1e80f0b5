"""The parts that handlers share: the broker's services, requests that wait, state between requests."""
