"""Which of several resources that name one topic it belongs to. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

Resource = Mapping[str, Any]


def topic_name(resource: Resource) -> str:
    """The topic that a KafscaleTopic names."""
    return str(resource["spec"].get("topicName") or resource["metadata"]["name"])


def cluster_name(resource: Resource) -> str:
    """The cluster that it names."""
    return str(resource["spec"]["clusterRef"]["name"])


def rivals(resource: Resource, resources: Iterable[Resource]) -> list[Resource]:
    """The others of the namespace that name the same topic and are to stay."""
    return [
        each
        for each in resources
        if each["metadata"]["uid"] != resource["metadata"]["uid"]
        and "deletionTimestamp" not in each["metadata"]
        and (cluster_name(each), topic_name(each)) == (cluster_name(resource), topic_name(resource))
    ]


def owner(resource: Resource, resources: Iterable[Resource]) -> Resource:
    """The one whose the topic is: who has had it, else who came first."""
    return min([resource, *rivals(resource, resources)], key=_rank)


def _rank(resource: Resource) -> tuple[bool, str, str]:
    metadata = resource["metadata"]
    has_it = resource.get("status", {}).get("topicName") is not None
    return (not has_it, metadata["creationTimestamp"], metadata["uid"])
