"""The first administrator: a KafscaleUser of the cluster's own, whose Secret has the credentials."""

from typing import Any

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.manifests import names
from kafscale.operator.manifests.objects import Manifest, manifest


def admin_user(cluster: ClusterSpec) -> Manifest | None:
    """None where clients do not authenticate. It needs no rules: it is a super user."""
    security = cluster.security
    if not security.has_admin:
        return None
    authentication: dict[str, Any] = {"type": "scram-sha-512" if security.admin_has_password else "tls"}
    if security.admin_has_password and security.admin_password_secret is not None:
        reference = {"name": security.admin_password_secret, "key": "password"}
        authentication["password"] = {"valueFrom": {"secretKeyRef": reference}}
    return manifest(
        api_names.API_VERSION,
        api_names.USER,
        names.admin(cluster.name, has_password=security.admin_has_password),
        cluster,
        names.BROKER,
        spec={"clusterRef": {"name": cluster.name}, "authentication": authentication},
    )
