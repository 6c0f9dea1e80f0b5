"""Kafka's wire protocol: primitives, record batches, codecs, messages decoded by hand. Pure."""
