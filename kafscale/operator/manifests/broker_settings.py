"""The settings that all brokers of a cluster share, as environment variables."""

from kafscale.operator.cluster_spec import Bucket, ClusterSpec
from kafscale.operator.manifests import broker_listeners, names
from kafscale.operator.manifests.objects import Manifest, manifest

ETCD_CLIENT_PORT = 2379
TLS_FOLDER = "/etc/kafscale/etcd-tls"


def environment(cluster: ClusterSpec) -> dict[str, str]:
    """The variables, without those that differ between brokers and without secrets."""
    found = dict(cluster.environment)
    found |= broker_listeners.environment(cluster)
    found["KAFSCALE_METRICS_ADDR"] = f":{names.METRICS_PORT}"
    found |= bucket_environment("KAFSCALE_S3", cluster.objects)
    found["KAFSCALE_S3_NAMESPACE"] = cluster.objects_namespace
    if cluster.read_replica is not None:
        found |= bucket_environment("KAFSCALE_S3_READ", cluster.read_replica)
    found["KAFSCALE_ETCD_ENDPOINTS"] = ",".join(etcd_endpoints(cluster))
    if cluster.etcd.prefix is not None:
        found["KAFSCALE_ETCD_PREFIX"] = cluster.etcd.prefix
    if cluster.etcd.tls_secret is not None:
        found["KAFSCALE_ETCD_CA"] = f"{TLS_FOLDER}/ca.crt"
        if cluster.etcd.shows_certificate:
            found["KAFSCALE_ETCD_CERT"] = f"{TLS_FOLDER}/tls.crt"
            found["KAFSCALE_ETCD_KEY"] = f"{TLS_FOLDER}/tls.key"
    return found


def etcd_endpoints(cluster: ClusterSpec) -> list[str]:
    """etcd's endpoints: as specified, or every member of the managed etcd."""
    managed = cluster.etcd.managed
    if managed is None:
        return list(cluster.etcd.endpoints)
    name = names.etcd(cluster.name)
    return [
        f"https://{name}-{member}.{names.in_namespace(name, cluster.namespace)}:{ETCD_CLIENT_PORT}"
        for member in range(managed.members)
    ]


def config_map(cluster: ClusterSpec) -> Manifest:
    """The ConfigMap, for Jobs such as `kafscale recover`. Brokers have the settings in their pod template."""
    return manifest(
        "v1", "ConfigMap", names.settings(cluster.name), cluster, names.BROKER, data=environment(cluster)
    )


def bucket_environment(prefix: str, bucket: Bucket) -> dict[str, str]:
    """The variables that name a bucket, each beginning with `prefix`; without credentials."""
    found = {f"{prefix}_BUCKET": bucket.bucket}
    if bucket.region is not None:
        found[f"{prefix}_REGION"] = bucket.region
    if bucket.endpoint is not None:
        found[f"{prefix}_ENDPOINT"] = bucket.endpoint
    if bucket.path_style is not None:
        found[f"{prefix}_PATH_STYLE"] = str(bucket.path_style).lower()
    if bucket.kms_key_arn is not None:
        found[f"{prefix}_KMS_ARN"] = bucket.kms_key_arn
    return found
