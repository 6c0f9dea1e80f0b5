"""Real clients over TLS and SASL, with rules and quotas; the same tests run on Apache Kafka."""
