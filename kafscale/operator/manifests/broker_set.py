"""The brokers' StatefulSet: one pod per broker id, replaced one at a time."""

from typing import Any

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, External, ExternalType
from kafscale.operator.manifests import broker_listeners, broker_settings, names
from kafscale.operator.manifests.objects import (
    Manifest,
    container_security,
    from_field,
    manifest,
    pod_security,
    store_credentials,
)

POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"
# Before the stop signal, so that no new connections are routed to the broker.
PRE_STOP_SEC = 2
# Time for the last replies and the exit, besides handing over.
ENDING_SEC = 5


def broker_set(cluster: ClusterSpec, image: str) -> Manifest:
    """Without `spec.replicas`, which has its own owner."""
    brokers = cluster.brokers
    selector = api_names.selector(cluster.name, names.BROKER)
    return manifest(
        "apps/v1",
        "StatefulSet",
        names.brokers(cluster.name),
        cluster,
        names.BROKER,
        spec={
            "serviceName": names.peers(cluster.name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "minReadySeconds": 1,
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {
                    "labels": api_names.labels(cluster.name, names.BROKER),
                    "annotations": dict(brokers.pod_annotations),
                },
                "spec": _pod(cluster, image, selector),
            },
        },
    )


def _pod(cluster: ClusterSpec, image: str, selector: dict[str, str]) -> dict[str, Any]:
    brokers = cluster.brokers
    pod: dict[str, Any] = {
        "serviceAccountName": brokers.service_account_name or names.brokers(cluster.name),
        "automountServiceAccountToken": needs_api(cluster),
        "terminationGracePeriodSeconds": brokers.termination_grace_sec,
        "securityContext": pod_security(),
        "enableServiceLinks": False,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": brokers.rack_key or "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector},
            }
        ],
        "affinity": dict(brokers.affinity) if brokers.affinity is not None else _apart(selector),
        "containers": [_container(cluster, image)],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
    }
    if cluster.etcd.tls_secret is not None:
        pod["volumes"].append({"name": "etcd-tls", "secret": {"secretName": cluster.etcd.tls_secret}})
    for name, secret, _ in broker_listeners.volumes(cluster):
        pod["volumes"].append({"name": name, "secret": {"secretName": secret}})
    if cluster.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in cluster.image_pull_secrets]
    if brokers.node_selector:
        pod["nodeSelector"] = dict(brokers.node_selector)
    if brokers.tolerations:
        pod["tolerations"] = [dict(one) for one in brokers.tolerations]
    if brokers.priority_class_name is not None:
        pod["priorityClassName"] = brokers.priority_class_name
    return pod


def _apart(selector: dict[str, str]) -> dict[str, Any]:
    """Brokers avoid sharing a node, if possible."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": selector}}
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]
        }
    }


def needs_api(cluster: ClusterSpec) -> bool:
    """True if a broker has to ask Kubernetes for its zone or its external address."""
    external = cluster.brokers.external
    return cluster.brokers.rack_key is not None or (external is not None and asks_address(external))


def asks_address(external: External) -> bool:
    """True if Kubernetes assigns a part of the broker's external address: host, or node port."""
    return external.type is ExternalType.NODE_PORT or external.host_template is None


def _container(cluster: ClusterSpec, image: str) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "broker",
        "image": image,
        "imagePullPolicy": cluster.image_pull_policy,
        "args": ["pod"] if needs_api(cluster) else ["serve"],
        # Not from the ConfigMap: a broker of the old template that restarts must not get new settings.
        "env": [*_shared(cluster), *_variables(cluster)],
        "ports": [
            *broker_listeners.ports(cluster),
            {"name": "metrics", "containerPort": names.METRICS_PORT},
        ],
        "startupProbe": _probe("/healthz", period=2, failures=150),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=3, failures=2),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SEC}}},
        "securityContext": container_security(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if cluster.brokers.resources:
        container["resources"] = dict(cluster.brokers.resources)
    if cluster.etcd.tls_secret is not None:
        container["volumeMounts"].append(
            {"name": "etcd-tls", "mountPath": broker_settings.TLS_FOLDER, "readOnly": True}
        )
    for name, _, folder in broker_listeners.volumes(cluster):
        container["volumeMounts"].append({"name": name, "mountPath": folder, "readOnly": True})
    return container


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _shared(cluster: ClusterSpec) -> list[dict[str, Any]]:
    """The settings that all brokers share, with `$` escaped, which Kubernetes would expand."""
    settings = sorted(broker_settings.environment(cluster).items())
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in settings]


def _variables(cluster: ClusterSpec) -> list[dict[str, Any]]:
    """Variables that differ between brokers, and secrets."""
    brokers, external = cluster.brokers, cluster.brokers.external
    asks = external is not None and asks_address(external)
    found = [
        from_field("KAFSCALE_BROKER_ID", POD_INDEX),
        from_field("POD_NAME", "metadata.name"),
        *broker_listeners.variables(cluster, asks_address=asks),
    ]
    if "KAFSCALE_SHUTDOWN_TIMEOUT_MS" not in cluster.environment:
        hand_over_ms = max(1, brokers.termination_grace_sec - PRE_STOP_SEC - ENDING_SEC) * 1000
        found.append({"name": "KAFSCALE_SHUTDOWN_TIMEOUT_MS", "value": str(hand_over_ms)})
    if needs_api(cluster):
        found += [
            from_field("POD_NAMESPACE", "metadata.namespace"),
            from_field("NODE_NAME", "spec.nodeName"),
        ]
        if brokers.rack_key is not None:
            found.append({"name": "RACK_LABEL", "value": brokers.rack_key})
        if asks:
            service = names.external(cluster.name, "$(KAFSCALE_BROKER_ID)")
            found.append({"name": "EXTERNAL_SERVICE", "value": service})
    return [*found, *store_credentials(cluster.objects.credentials_secret, cluster.etcd.credentials_secret)]
