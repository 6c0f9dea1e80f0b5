"""The brokers' services: bootstrap, a host name per broker, and external addresses."""

from collections.abc import Mapping
from typing import Any

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, External, ExternalType
from kafscale.operator.manifests import names
from kafscale.operator.manifests.objects import Manifest, manifest

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
BROKER_ID_LABEL = f"{api_names.GROUP}/broker-id"
EXTERNAL_HOST_NAME = "external-dns.alpha.kubernetes.io/hostname"

_KAFKA = {"name": "kafka", "port": names.KAFKA_PORT, "targetPort": "kafka"}
_METRICS = {"name": "metrics", "port": names.METRICS_PORT, "targetPort": "metrics"}


def within(cluster: ClusterSpec) -> list[Manifest]:
    """The services for clients within the Kubernetes cluster."""
    selector = api_names.selector(cluster.name, names.BROKER)
    further = [
        {"name": each.port_name, "port": each.port, "targetPort": each.port_name}
        for each in cluster.security.further
    ]
    kafka = [_KAFKA, *further]
    begin = manifest(
        "v1",
        "Service",
        names.bootstrap(cluster.name),
        cluster,
        names.BROKER,
        spec={"type": "ClusterIP", "selector": selector, "ports": kafka},
    )
    begin["metadata"]["annotations"] = dict(cluster.brokers.service_annotations)
    peers = manifest(
        "v1",
        "Service",
        names.peers(cluster.name),
        cluster,
        names.BROKER,
        spec={
            "clusterIP": "None",
            "selector": selector,
            # A broker that hands over stays reachable by its name.
            "publishNotReadyAddresses": True,
            "ports": [*kafka, _METRICS],
        },
    )
    return [begin, peers]


def outside(cluster: ClusterSpec, broker_count: int) -> list[Manifest]:
    """Services for clients outside: one for all brokers and one per broker; empty without `external`."""
    external = cluster.brokers.external
    if external is None:
        return []
    selector = api_names.selector(cluster.name, names.BROKER)
    found = [
        _service(cluster, external, names.external_bootstrap(cluster.name), selector, external.bootstrap_host)
    ]
    for broker_id in range(broker_count):
        pod = {POD_NAME_LABEL: f"{names.brokers(cluster.name)}-{broker_id}"}
        host = external.host_template and external.host_template.replace("{id}", str(broker_id))
        service = _service(cluster, external, names.external(cluster.name, broker_id), pod, host)
        service["metadata"]["labels"][BROKER_ID_LABEL] = str(broker_id)
        service["spec"]["publishNotReadyAddresses"] = True
        found.append(service)
    return found


def _service(
    cluster: ClusterSpec, external: External, name: str, selector: Mapping[str, str], host: str | None
) -> Manifest:
    spec: dict[str, Any] = {
        "type": external.type.value,
        # Keeps clients' addresses, and avoids a hop through another node.
        "externalTrafficPolicy": "Local",
        "selector": dict(selector),
        "ports": [{"name": "external", "port": external.port, "targetPort": "external"}],
    }
    if external.source_ranges and external.type is ExternalType.LOAD_BALANCER:
        spec["loadBalancerSourceRanges"] = list(external.source_ranges)
    found = manifest("v1", "Service", name, cluster, names.BROKER, spec=spec)
    annotations = dict(external.annotations)
    if host is not None:
        annotations.setdefault(EXTERNAL_HOST_NAME, host)
    found["metadata"]["annotations"] = annotations
    return found
