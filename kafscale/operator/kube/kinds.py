"""The kinds of Kubernetes objects that the operator uses, and their API paths."""

from dataclasses import dataclass
from typing import Final

from kafscale.operator import api_names


@dataclass(frozen=True, slots=True)
class Kind:
    """A manifest's apiVersion and kind, and the plural in its path."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Path of one object, or of all; `namespace` None: of every namespace."""
        root = "apis" if "/" in self.api_version else "api"
        parts = ["", root, self.api_version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        return "/".join([*parts, *(part for part in (name, subresource) if part is not None)])


CLUSTER: Final = Kind(api_names.API_VERSION, api_names.CLUSTER, api_names.CLUSTERS)
TOPIC: Final = Kind(api_names.API_VERSION, api_names.TOPIC, api_names.TOPICS)
USER: Final = Kind(api_names.API_VERSION, api_names.USER, api_names.USERS)
EXPORT: Final = Kind(api_names.API_VERSION, api_names.EXPORT, api_names.EXPORTS)
POD: Final = Kind("v1", "Pod", "pods")
NODE: Final = Kind("v1", "Node", "nodes", namespaced=False)
SERVICE: Final = Kind("v1", "Service", "services")
SERVICE_ACCOUNT: Final = Kind("v1", "ServiceAccount", "serviceaccounts")
SECRET: Final = Kind("v1", "Secret", "secrets")
CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
EVENT: Final = Kind("v1", "Event", "events")
VOLUME_CLAIM: Final = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
STATEFUL_SET: Final = Kind("apps/v1", "StatefulSet", "statefulsets")
DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments")
CRON_JOB: Final = Kind("batch/v1", "CronJob", "cronjobs")
AUTOSCALER: Final = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
DISRUPTION_BUDGET: Final = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY: Final = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
ROLE: Final = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE: Final = Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING: Final = Kind(
    "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
LEASE: Final = Kind("coordination.k8s.io/v1", "Lease", "leases")

_ALL: Final = (
    CLUSTER, TOPIC, USER, EXPORT, DEPLOYMENT, CRON_JOB, POD, NODE, SERVICE, SERVICE_ACCOUNT, SECRET, CONFIG_MAP,
    EVENT, VOLUME_CLAIM, STATEFUL_SET, AUTOSCALER, DISRUPTION_BUDGET, NETWORK_POLICY, ROLE, ROLE_BINDING,
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, LEASE,
)  # fmt: skip
_BY_NAME: Final = {(kind.api_version, kind.kind): kind for kind in _ALL}


def kind_of(api_version: str, kind: str) -> Kind:
    """Looks up a kind. Raises LookupError for one that the operator does not use."""
    try:
        return _BY_NAME[api_version, kind]
    except KeyError:
        raise LookupError(f"{kind} of {api_version} is not a kind that the operator uses") from None
