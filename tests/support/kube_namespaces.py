"""A namespace for a test, and its removal with all objects in it, whatever the test left."""

import contextlib
import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.kube_api import NAMESPACE, POD, SERVICE_ACCOUNT, ApiRefusalError, Kind, KubeApi
from tests.support.kube_definitions import custom_kinds
from tests.support.waiting import wait_until

_numbers = itertools.count(1)


@contextmanager
def new_namespace(
    admin: KubeApi, *, pod_security: str = "privileged", name: str = "test"
) -> Iterator[KubeApi]:
    """The API within a new namespace that enforces that Pod Security standard: privileged, baseline or restricted."""
    api = admin.within(f"{name}-{next(_numbers)}")
    labels = {"pod-security.kubernetes.io/enforce": pod_security}
    metadata = {"name": api.namespace, "labels": labels}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    try:
        account = f"{api.namespace} has an account for pods"
        wait_until(lambda: api.find(SERVICE_ACCOUNT, "default"), account)
        yield api
    finally:
        remove_namespace(api)


def remove_namespace(api: KubeApi) -> None:
    """Returns when no pod and no custom object is left; the rest is deleted with the namespace, some seconds later.

    No kubelet and no operator is needed for that: finalizers are removed.
    """
    api.delete(NAMESPACE, api.namespace)  # from now on no object can be created in it
    for kind in [POD, *custom_kinds(api)]:
        what = f"every {kind.kind} of {api.namespace} is gone"
        wait_until(functools.partial(_none_left, api, kind), what)


def _none_left(api: KubeApi, kind: Kind) -> bool:
    """Delete all objects; true if there were none."""
    found = api.select(kind)
    for each in found:
        name = each["metadata"]["name"]
        with contextlib.suppress(ApiRefusalError):  # deleted meanwhile
            api.delete(kind, name, grace_s=0)
            if each["metadata"].get("finalizers"):
                api.patch(kind, name, {"metadata": {"finalizers": None}})
    return not found
