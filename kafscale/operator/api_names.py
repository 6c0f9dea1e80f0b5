"""Names of Kafscale's API group, labels, field managers and finalizer in Kubernetes."""

from typing import Final

GROUP: Final = "kafscale.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

CLUSTER: Final = "KafscaleCluster"
CLUSTERS: Final = "kafscaleclusters"
TOPIC: Final = "KafscaleTopic"
TOPICS: Final = "kafscaletopics"
USER: Final = "KafscaleUser"
USERS: Final = "kafscaleusers"
EXPORT: Final = "KafscaleExport"
EXPORTS: Final = "kafscaleexports"

FIELD_MANAGER: Final = "kafscale-operator"
"""Field manager of the fields that the operator applies (server-side apply)."""

SCALE_FIELD_MANAGER: Final = "kafscale-operator-scale"
"""Field manager of `spec.replicas` alone, while no autoscaler owns it; so releasing it resets nothing else."""

NODE_READER_ROLE: Final = "kafscale-node-reader"
"""The chart's ClusterRole that may `get` nodes, and the ClusterRoleBinding that grants it to brokers."""

FINALIZER: Final = f"{GROUP}/finalizer"

ROTATE: Final = f"{GROUP}/rotate"
"""Annotation of a KafscaleUser: each new value asks once for a new password or certificate."""

EXPORT_LABEL: Final = f"{GROUP}/export"
"""Label of the objects and pods of a KafscaleExport, with its name."""

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
NAME: Final = "app.kubernetes.io/name"


def labels(cluster: str, component: str) -> dict[str, str]:
    """Labels of every object of one component of a cluster."""
    return {NAME: "kafscale", INSTANCE: cluster, COMPONENT: component, MANAGED_BY: FIELD_MANAGER}


def selector(cluster: str, component: str) -> dict[str, str]:
    """The subset that never changes; selects pods."""
    return {NAME: "kafscale", INSTANCE: cluster, COMPONENT: component}
