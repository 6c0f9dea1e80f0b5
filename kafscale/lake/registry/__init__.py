"""Schemas from a schema registry of Confluent's API, each asked for once and then kept in the object store."""
