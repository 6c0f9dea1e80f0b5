"""The HorizontalPodAutoscaler and the PodDisruptionBudgets."""

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.manifests import names
from kafscale.operator.manifests.objects import Manifest, manifest


def autoscaler(cluster: ClusterSpec) -> Manifest | None:
    """The HorizontalPodAutoscaler; None if the number of brokers is specified."""
    scaling = cluster.brokers.autoscaling
    if scaling is None:
        return None
    spec = {
        "scaleTargetRef": {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": names.brokers(cluster.name),
        },
        "minReplicas": scaling.min_replicas,
        "maxReplicas": scaling.max_replicas,
        "metrics": [
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": scaling.target_cpu_percent},
                },
            }
        ],
    }
    if scaling.behavior:
        spec["behavior"] = dict(scaling.behavior)
    return manifest(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        names.brokers(cluster.name),
        cluster,
        names.BROKER,
        spec=spec,
    )


def disruption_budget(cluster: ClusterSpec, component: str, name: str) -> Manifest:
    """Allows evicting one pod of a component at a time, and brokers that are not ready."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": api_names.selector(cluster.name, component)}}
    if component == names.BROKER:
        # Brokers are stateless: an unready one must not block draining a node.
        spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        name,
        cluster,
        component,
        spec=spec,
    )
