"""Custom kinds for the time of a test: served before it starts, deleted when it has ended."""

import contextlib
import functools
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.kube_api import CRD, ApiRefusalError, Kind, KubeApi, Manifest
from tests.support.waiting import wait_until


@contextmanager
def defined(admin: KubeApi, *definitions: Manifest) -> Iterator[None]:
    """CustomResourceDefinitions that are served in the block. Their objects go with them, despite finalizers."""
    try:
        for definition in definitions:
            admin.create(definition)
        for definition in definitions:
            for kind in kinds_of(definition):
                wait_until(functools.partial(admin.serves, kind), f"{kind.kind} is served")
        yield
    finally:
        for definition in definitions:
            undefine(admin, definition)


def undefine(admin: KubeApi, definition: Manifest) -> None:
    """Delete the definition and its objects, despite finalizers; returns when they are gone."""
    name = definition["metadata"]["name"]
    if admin.find(CRD, name):
        admin.delete(CRD, name)
    wait_until(functools.partial(_is_gone, admin, definition), f"the definition {name} is gone")


def _is_gone(admin: KubeApi, definition: Manifest) -> bool:
    if admin.find(CRD, definition["metadata"]["name"]) is None:
        return True
    with contextlib.suppress(ApiRefusalError, LookupError):  # it is being deleted just now
        for each in admin.select(kinds_of(definition)[0], "*"):
            name, namespace = each["metadata"]["name"], each["metadata"].get("namespace")
            if each["metadata"].get("finalizers"):
                admin.patch(kinds_of(definition)[0], name, {"metadata": {"finalizers": None}}, namespace)
    return False


def custom_kinds(admin: KubeApi) -> list[Kind]:
    """The kinds that are defined now and namespaced, each in one served version."""
    definitions = [each for each in admin.select(CRD) if each["spec"]["scope"] == "Namespaced"]
    kinds = [kinds_of(each)[0] for each in definitions]
    return [kind for kind in kinds if admin.serves(kind)]


def kinds_of(definition: Manifest) -> list[Kind]:
    """The kind in each version that is to be served."""
    spec = definition["spec"]
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    return [Kind(f"{spec['group']}/{version}", spec["names"]["kind"]) for version in versions]
