"""The assignors by name, as in Kafka's `group.consumer.assignors` and in clients' `group.remote.assignor`."""

import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kafscale.groups.assignors import range_assignor, uniform_assignor
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.modern.assignment import Assignment

Assignor = Callable[[Mapping[str, Subscription], Mapping[uuid.UUID, int]], dict[str, Assignment]]
"""Members by id, and the number of partitions of every subscribed topic; returns every member's partitions.

Pure, and idempotent: called again with what it returned as `owned`, it returns the same. Raises KeyError if a
subscribed topic has no number of partitions.
"""

DEFAULT_ASSIGNOR: Final = "uniform"
"""Kafka's: the first of the list."""

ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {DEFAULT_ASSIGNOR: uniform_assignor.assign, "range": range_assignor.assign}
)
