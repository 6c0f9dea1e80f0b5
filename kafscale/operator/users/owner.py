"""Ownership of a user that several resources name. Pure."""

from collections.abc import Iterable

from kafscale.operator import cluster_resources
from kafscale.operator.cluster_resources import Resource
from kafscale.operator.users.spec import user_name


def rivals(resource: Resource, resources: Iterable[Resource]) -> list[Resource]:
    """Other resources of the namespace that name the same user and are not being deleted."""
    return cluster_resources.rivals(resource, resources, user_name)


def owner(resource: Resource, resources: Iterable[Resource]) -> Resource:
    """The resource that owns the user: the one that already has it, else the oldest."""
    return cluster_resources.owner(resource, resources, user_name, _has_it)


def _has_it(resource: Resource) -> bool:
    return resource.get("status", {}).get("principal") is not None
