"""Brokers for the tests of programs that use Kafka."""
