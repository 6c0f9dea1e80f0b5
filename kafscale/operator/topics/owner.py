"""Ownership of a topic that several resources name. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

Resource = Mapping[str, Any]


def topic_name(resource: Resource) -> str:
    """Name of a KafscaleTopic's topic."""
    return str(resource["spec"].get("topicName") or resource["metadata"]["name"])


def cluster_name(resource: Resource) -> str:
    """Name of its cluster."""
    return str(resource["spec"]["clusterRef"]["name"])


def rivals(resource: Resource, resources: Iterable[Resource]) -> list[Resource]:
    """Other resources of the namespace that name the same topic and are not being deleted."""
    return [
        each
        for each in resources
        if each["metadata"]["uid"] != resource["metadata"]["uid"]
        and "deletionTimestamp" not in each["metadata"]
        and (cluster_name(each), topic_name(each)) == (cluster_name(resource), topic_name(resource))
    ]


def owner(resource: Resource, resources: Iterable[Resource]) -> Resource:
    """The resource that owns the topic: the one that already has it, else the oldest."""
    return min([resource, *rivals(resource, resources)], key=_rank)


def _rank(resource: Resource) -> tuple[bool, str, str]:
    metadata = resource["metadata"]
    has_it = resource.get("status", {}).get("topicName") is not None
    return (not has_it, metadata["creationTimestamp"], metadata["uid"])
