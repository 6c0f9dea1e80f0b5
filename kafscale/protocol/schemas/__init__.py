"""Schemas of messages that kafka-python does not have, in the form of Kafka's own (KIP-482), as of Kafka 4.1."""
