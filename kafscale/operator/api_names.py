"""The names under which Kubernetes knows what is Kafscale's."""

from typing import Final

GROUP: Final = "kafscale.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

CLUSTER: Final = "KafscaleCluster"
CLUSTERS: Final = "kafscaleclusters"
TOPIC: Final = "KafscaleTopic"
TOPICS: Final = "kafscaletopics"

FIELD_MANAGER: Final = "kafscale-operator"
"""Who owns the fields that the operator applies (server-side apply)."""

SCALE_FIELD_MANAGER: Final = "kafscale-operator-scale"
"""Who owns `spec.replicas` while no autoscaler does; apart, so that giving it up resets nothing."""

NODE_READER_ROLE: Final = "kafscale-node-reader"
"""The ClusterRole, made by the chart, that may `get` nodes, and the binding that gives it to brokers."""

FINALIZER: Final = f"{GROUP}/finalizer"

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
NAME: Final = "app.kubernetes.io/name"


def labels(cluster: str, component: str) -> dict[str, str]:
    """The labels of everything that belongs to one part of a cluster."""
    return {NAME: "kafscale", INSTANCE: cluster, COMPONENT: component, MANAGED_BY: FIELD_MANAGER}


def selector(cluster: str, component: str) -> dict[str, str]:
    """Those of them that never change, by which pods are selected."""
    return {NAME: "kafscale", INSTANCE: cluster, COMPONENT: component}
