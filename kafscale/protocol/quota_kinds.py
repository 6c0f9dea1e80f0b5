"""Kinds of client quotas."""

from enum import StrEnum


class QuotaKind(StrEnum):
    """By Kafka's names (`QuotaConfig`): of users and client ids, and `CONNECTION` of addresses."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"
