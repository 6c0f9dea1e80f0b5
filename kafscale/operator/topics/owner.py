"""Ownership of a topic that several resources name. Pure."""

from collections.abc import Iterable

from kafscale.operator import cluster_resources
from kafscale.operator.cluster_resources import Resource


def topic_name(resource: Resource) -> str:
    """Name of a KafscaleTopic's topic."""
    return str(resource["spec"].get("topicName") or resource["metadata"]["name"])


def rivals(resource: Resource, resources: Iterable[Resource]) -> list[Resource]:
    """Other resources of the namespace that name the same topic and are not being deleted."""
    return cluster_resources.rivals(resource, resources, topic_name)


def owner(resource: Resource, resources: Iterable[Resource]) -> Resource:
    """The resource that owns the topic: the one that already has it, else the oldest."""
    return cluster_resources.owner(resource, resources, topic_name, _has_it)


def _has_it(resource: Resource) -> bool:
    return resource.get("status", {}).get("topicName") is not None
