"""The managed etcd: a StatefulSet whose pods are the members, each with a volume, and their headless service."""

from typing import Any, Final

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, ManagedEtcd
from kafscale.operator.manifests import etcd_start, names
from kafscale.operator.manifests.objects import (
    Manifest,
    container_security,
    from_field,
    manifest,
    pod_security,
)
from kafscale.operator.manifests.scaling import disruption_budget
from kafscale.operator.times import duration_ms

VOLUME: Final = "data"
_DATA_FOLDER: Final = "/var/lib/etcd"
_TLS_FOLDER: Final = "/etc/etcd-tls"
# Neither is a reason to kill a member or to stop a roll-out: the alarm's condition and metric report it.
_BUT_ALARMS: Final = "exclude=NOSPACE&exclude=CORRUPT"


def etcd_set(cluster: ClusterSpec, managed: ManagedEtcd, image: str, members: int) -> Manifest:
    """`members`: how many the cluster was formed with, whatever its specification says now."""
    selector = api_names.selector(cluster.name, names.ETCD)
    return manifest(
        "apps/v1",
        "StatefulSet",
        names.etcd(cluster.name),
        cluster,
        names.ETCD,
        spec={
            "serviceName": names.etcd(cluster.name),
            "replicas": members,
            # No member is ready before a majority runs.
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "minReadySeconds": 5,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": api_names.labels(cluster.name, names.ETCD)},
                "spec": _pod(cluster, managed, image, selector),
            },
            "volumeClaimTemplates": [_volume_claim(managed, selector)],
        },
    )


def etcd_service(cluster: ClusterSpec) -> Manifest:
    """Headless: a host name per member, also before it is ready, since members must find each other first."""
    return manifest(
        "v1",
        "Service",
        names.etcd(cluster.name),
        cluster,
        names.ETCD,
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": api_names.selector(cluster.name, names.ETCD),
            "ports": [
                {"name": "client", "port": etcd_start.CLIENT_PORT, "targetPort": "client"},
                {"name": "peer", "port": etcd_start.PEER_PORT, "targetPort": "peer"},
                {"name": "metrics", "port": etcd_start.METRICS_PORT, "targetPort": "metrics"},
            ],
        },
    )


def etcd_budget(cluster: ClusterSpec) -> Manifest:
    """One member at a time may be evicted."""
    return disruption_budget(cluster, names.ETCD, names.etcd(cluster.name))


def _pod(cluster: ClusterSpec, managed: ManagedEtcd, image: str, selector: dict[str, str]) -> dict[str, Any]:
    selected = {"labelSelector": {"matchLabels": selector}}
    apart = {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", **selected}}
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        # etcd requires a private folder, and changing the group of gigabytes at each start is slow.
        "securityContext": {**pod_security(), "fsGroupChangePolicy": "OnRootMismatch"},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                **selected,
            }
        ],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [_container(cluster, managed, image)],
        "volumes": [
            # Readable by the pod's group only.
            {"name": "tls", "secret": {"secretName": names.etcd_members(cluster.name), "defaultMode": 0o440}}
        ],
    }
    if cluster.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in cluster.image_pull_secrets]
    return pod


def _container(cluster: ClusterSpec, managed: ManagedEtcd, image: str) -> dict[str, Any]:
    alive = f"/health?serializable=true&{_BUT_ALARMS}"
    container: dict[str, Any] = {
        "name": "etcd",
        "image": image,
        "imagePullPolicy": cluster.image_pull_policy,
        "command": ["etcd"],
        "args": _flags(cluster, managed),
        "env": [
            from_field("POD_NAME", "metadata.name"),
            _from_start(cluster, "INITIAL_CLUSTER", etcd_start.INITIAL_CLUSTER),
            _from_start(cluster, "INITIAL_CLUSTER_STATE", etcd_start.INITIAL_CLUSTER_STATE),
            _from_start(cluster, "INITIAL_CLUSTER_TOKEN", etcd_start.INITIAL_CLUSTER_TOKEN),
        ],
        "ports": [
            {"name": "client", "containerPort": etcd_start.CLIENT_PORT},
            {"name": "peer", "containerPort": etcd_start.PEER_PORT},
            {"name": "metrics", "containerPort": etcd_start.METRICS_PORT},
        ],
        # Fetching a snapshot from the leader, or replaying a long log, is slow.
        "startupProbe": _probe(alive, period=5, failures=120),
        # A member that is being defragmented does not answer, for minutes with gigabytes.
        "livenessProbe": _probe(alive, period=10, failures=30),
        # A linearizable read: there is a leader, and this member has caught up.
        "readinessProbe": _probe(f"/health?{_BUT_ALARMS}", period=5, failures=2),
        # The last log lines say why it did not start.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": VOLUME, "mountPath": _DATA_FOLDER},
            {"name": "tls", "mountPath": _TLS_FOLDER, "readOnly": True},
        ],
    }
    if managed.resources:
        container["resources"] = dict(managed.resources)
    return container


def _flags(cluster: ClusterSpec, managed: ManagedEtcd) -> list[str]:
    retention_ms = duration_ms("etcd.managed.autoCompactionRetention", managed.compaction_retention)
    return [
        "--name=$(POD_NAME)",
        # Below the mount, which may hold lost+found.
        f"--data-dir={_DATA_FOLDER}/data",
        f"--listen-client-urls=https://0.0.0.0:{etcd_start.CLIENT_PORT}",
        f"--listen-peer-urls=https://0.0.0.0:{etcd_start.PEER_PORT}",
        f"--listen-metrics-urls=http://0.0.0.0:{etcd_start.METRICS_PORT}",
        f"--advertise-client-urls={etcd_start.client_url('$(POD_NAME)', cluster.name, cluster.namespace)}",
        "--initial-advertise-peer-urls="
        + etcd_start.peer_url("$(POD_NAME)", cluster.name, cluster.namespace),
        "--initial-cluster=$(INITIAL_CLUSTER)",
        "--initial-cluster-state=$(INITIAL_CLUSTER_STATE)",
        "--initial-cluster-token=$(INITIAL_CLUSTER_TOKEN)",
        f"--cert-file={_TLS_FOLDER}/tls.crt",
        f"--key-file={_TLS_FOLDER}/tls.key",
        f"--trusted-ca-file={_TLS_FOLDER}/ca.crt",
        "--client-cert-auth",
        f"--peer-cert-file={_TLS_FOLDER}/tls.crt",
        f"--peer-key-file={_TLS_FOLDER}/tls.key",
        f"--peer-trusted-ca-file={_TLS_FOLDER}/ca.crt",
        "--peer-client-cert-auth",
        f"--peer-cert-allowed-cn={etcd_start.MEMBER_NAME}",
        "--auto-compaction-mode=periodic",
        f"--auto-compaction-retention={retention_ms}ms",
        f"--quota-backend-bytes={managed.quota_bytes}",
        "--logger=zap",
        "--log-outputs=stderr",
    ]


def _from_start(cluster: ClusterSpec, variable: str, key: str) -> dict[str, Any]:
    reference = {"name": etcd_start.name_of(cluster.name), "key": key}
    return {"name": variable, "valueFrom": {"configMapKeyRef": reference}}


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _volume_claim(managed: ManagedEtcd, labels: dict[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": managed.storage_size}},
    }
    if managed.storage_class_name is not None:
        spec["storageClassName"] = managed.storage_class_name
    return {"metadata": {"name": VOLUME, "labels": labels}, "spec": spec}
