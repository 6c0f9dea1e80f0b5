"""A KafscaleCluster's specification as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafscale.errors import SettingError
from kafscale.operator.errors import SpecError
from kafscale.operator.manifests import names
from kafscale.operator.schema import setting_properties
from kafscale.operator.security_spec import SecuritySpec, security_spec
from kafscale.operator.times import duration_ms

Free = Mapping[str, Any]
"""Part of a pod or service, passed through unchanged."""


class ExternalType(StrEnum):
    """Type of the services for clients outside the Kubernetes cluster."""

    LOAD_BALANCER = "LoadBalancer"
    NODE_PORT = "NodePort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """Settings of the HorizontalPodAutoscaler."""

    min_replicas: int
    max_replicas: int
    target_cpu_percent: int
    behavior: Free = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """Addresses for clients outside. `host_template` contains `{id}`; None: brokers ask Kubernetes."""

    type: ExternalType
    port: int
    host_template: str | None
    bootstrap_host: str | None
    annotations: Mapping[str, str]
    source_ranges: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """Peers that may connect to the Kafka port and to the metrics, as in `from` of a NetworkPolicy; empty: all."""

    clients: Sequence[Free]
    monitoring: Sequence[Free]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The brokers. `replicas` None: the autoscaler decides. `rack_key`: node label that names the zone."""

    replicas: int | None
    autoscaling: Autoscaling | None
    rack_key: str | None
    external: External | None
    network_policy: NetworkPolicy | None
    termination_grace_sec: int
    resources: Free
    service_annotations: Mapping[str, str]
    pod_annotations: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: Sequence[Free]
    affinity: Free | None
    priority_class_name: str | None
    service_account_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket and its endpoint. `credentials_secret` None: the service account's role is used."""

    bucket: str
    region: str | None = None
    endpoint: str | None = None
    path_style: bool | None = None
    kms_key_arn: str | None = None
    credentials_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedEtcd:
    """The etcd that the operator runs."""

    image: str | None
    members: int
    storage_size: str
    storage_class_name: str | None
    quota_bytes: int
    compaction_retention: str
    defragment_schedule: str
    resources: Free


@dataclass(frozen=True, slots=True, kw_only=True)
class Etcd:
    """The metadata store: either `endpoints` or `managed`."""

    endpoints: Sequence[str]
    managed: ManagedEtcd | None
    prefix: str | None
    tls_secret: str | None
    shows_certificate: bool
    credentials_secret: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backups:
    """Snapshots of the metadata store."""

    schedule: str
    keep: int
    keep_for_ms: int
    suspend: bool
    bucket: Bucket
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The desired state of one cluster. `environment`: the brokers' settings of `config`, as variables."""

    name: str
    namespace: str
    image: str | None
    image_pull_policy: str
    image_pull_secrets: Sequence[str]
    brokers: Brokers
    objects: Bucket
    objects_namespace: str
    read_replica: Bucket | None
    etcd: Etcd
    environment: Mapping[str, str]
    security: SecuritySpec
    backups: Backups | None


def cluster_spec(name: str, namespace: str, spec: Mapping[str, Any]) -> ClusterSpec:
    """Parses a resource's `spec`, with defaults filled in. Raises `SpecError`."""
    objects = spec["s3"]
    replica = objects.get("readReplica")
    try:
        environment = setting_properties.environment(spec.get("config", {}))
    except SettingError as problem:
        raise SpecError(str(problem)) from problem
    return ClusterSpec(
        name=name,
        namespace=namespace,
        image=spec.get("image"),
        image_pull_policy=spec.get("imagePullPolicy", "IfNotPresent"),
        image_pull_secrets=spec.get("imagePullSecrets", ()),
        brokers=_brokers(spec["brokers"]),
        objects=_bucket(objects),
        objects_namespace=objects.get("namespace", "default"),
        read_replica=_bucket(replica) if replica else None,
        etcd=_etcd(name, spec["etcd"]),
        environment=environment,
        security=_security(spec),
        backups=_backups(spec["backups"]) if "backups" in spec else None,
    )


def _brokers(spec: Mapping[str, Any]) -> Brokers:
    scaling, external = spec.get("autoscaling"), spec.get("external")
    return Brokers(
        replicas=spec.get("replicas"),
        autoscaling=None
        if scaling is None
        else Autoscaling(
            min_replicas=scaling.get("minReplicas", 3),
            max_replicas=scaling["maxReplicas"],
            target_cpu_percent=scaling.get("targetCPUUtilizationPercentage", 70),
            behavior=scaling.get("behavior", {}),
        ),
        rack_key=spec["rack"].get("topologyKey") if "rack" in spec else None,
        external=None if external is None else _external(external),
        network_policy=_network_policy(spec["networkPolicy"]) if "networkPolicy" in spec else None,
        termination_grace_sec=spec.get("terminationGracePeriodSeconds", 60),
        resources=spec.get("resources", {}),
        service_annotations=spec.get("service", {}).get("annotations", {}),
        pod_annotations=spec.get("podAnnotations", {}),
        node_selector=spec.get("nodeSelector", {}),
        tolerations=spec.get("tolerations", ()),
        affinity=spec.get("affinity"),
        priority_class_name=spec.get("priorityClassName"),
        service_account_name=spec.get("serviceAccountName"),
    )


def _security(spec: Mapping[str, Any]) -> SecuritySpec:
    found = security_spec(spec.get("security", {}))
    external = spec["brokers"].get("external")
    taken = {} if external is None else {external.get("port", 9094): "brokers.external.port"}
    for each in found.further:
        where = f"security.{each.section}.port"
        if each.port in taken:
            raise SpecError(f"{where}={each.port} is {taken[each.port]}, too: give it another")
        taken[each.port] = where
    return found


def _network_policy(spec: Mapping[str, Any]) -> NetworkPolicy:
    return NetworkPolicy(clients=spec.get("clients", ()), monitoring=spec.get("monitoring", ()))


def _external(spec: Mapping[str, Any]) -> External:
    template = spec.get("hostTemplate")
    if template is not None and "{id}" not in template:
        raise SpecError(
            f"brokers.external.hostTemplate={template!r} is the same for every broker: it must hold {{id}}"
        )
    return External(
        type=ExternalType(spec.get("type", ExternalType.LOAD_BALANCER)),
        port=spec.get("port", 9094),
        host_template=template,
        bootstrap_host=spec.get("bootstrapHost"),
        annotations=spec.get("annotations", {}),
        source_ranges=spec.get("loadBalancerSourceRanges", ()),
    )


def _bucket(spec: Mapping[str, Any]) -> Bucket:
    return Bucket(
        bucket=spec["bucket"],
        region=spec.get("region"),
        endpoint=spec.get("endpoint"),
        path_style=spec.get("pathStyle"),
        kms_key_arn=spec.get("kmsKeyArn"),
        credentials_secret=spec.get("credentialsSecret"),
    )


def _etcd(cluster: str, spec: Mapping[str, Any]) -> Etcd:
    """A managed etcd accepts only clients with the certificate that the operator issues."""
    managed = spec.get("managed")
    return Etcd(
        endpoints=spec.get("endpoints", ()),
        managed=None
        if managed is None
        else ManagedEtcd(
            image=managed.get("image"),
            members=managed.get("members", 3),
            storage_size=managed.get("storageSize", "8Gi"),
            storage_class_name=managed.get("storageClassName"),
            quota_bytes=managed.get("quotaBytes", 4 * 2**30),
            compaction_retention=managed.get("autoCompactionRetention", "2m"),
            defragment_schedule=managed.get("defragmentSchedule", "17 3 * * *"),
            resources=managed.get("resources", {}),
        ),
        prefix=spec.get("prefix"),
        tls_secret=spec.get("tlsSecret") if managed is None else names.etcd_clients(cluster),
        shows_certificate=spec.get("tlsClientCertificate", False) if managed is None else True,
        credentials_secret=spec.get("credentialsSecret"),
    )


def _backups(spec: Mapping[str, Any]) -> Backups:
    return Backups(
        schedule=spec.get("schedule", "*/30 * * * *"),
        keep=spec.get("keep", 48),
        keep_for_ms=duration_ms("backups.keepFor", spec.get("keepFor", "168h")),
        suspend=spec.get("suspend", False),
        bucket=_bucket(spec["s3"]),
        prefix=spec["s3"].get("prefix", "kafscale-backups"),
    )
