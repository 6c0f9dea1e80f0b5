"""The CronJob or Deployment of an export. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.exports.command_line import SECRET_VARIABLE, arguments, command
from kafscale.operator.exports.spec import ExportSpec
from kafscale.operator.kube.kinds import CRON_JOB, DEPLOYMENT, Kind
from kafscale.operator.manifests import broker_settings, names
from kafscale.operator.manifests.objects import (
    Manifest,
    container_security,
    from_secret,
    pod_security,
    store_credentials,
)

_STORES: Final = ("KAFSCALE_S3_", "KAFSCALE_ETCD_")
_KEPT_SEC: Final = 172_800
_LATE_SEC: Final = 300


def kind_of_workload(export: ExportSpec) -> Kind:
    """A CronJob with a schedule, else a Deployment."""
    return DEPLOYMENT if export.schedule is None else CRON_JOB


def labels(export: ExportSpec) -> dict[str, str]:
    """Of the workload and its pods, which a managed etcd lets in as it does brokers."""
    return {**api_names.labels(export.cluster, names.EXPORT), api_names.EXPORT_LABEL: export.name}


def selector(export: ExportSpec) -> dict[str, str]:
    """Selects the export's pods."""
    return {**api_names.selector(export.cluster, names.EXPORT), api_names.EXPORT_LABEL: export.name}


def workload(export: ExportSpec, cluster: ClusterSpec, owner: Mapping[str, Any]) -> Manifest:
    """The object, owned by the KafscaleExport `owner`, with which it is deleted."""
    kind = kind_of_workload(export)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": names.export(export.name),
            "namespace": export.namespace,
            "labels": labels(export),
            "ownerReferences": [_reference(owner)],
        },
        "spec": _deployment(export, cluster) if export.schedule is None else _cron_job(export, cluster),
    }


def _reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.EXPORT,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _cron_job(export: ExportSpec, cluster: ClusterSpec) -> dict[str, Any]:
    return {
        "schedule": export.schedule,
        "timeZone": "Etc/UTC",
        "suspend": export.suspend,
        # A second run would find the topics' leases held, and fail; this way it does not start.
        "concurrencyPolicy": "Forbid",
        # A run that could not start in time is left out: the next one brings the same records.
        "startingDeadlineSeconds": _LATE_SEC,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 5,
        "jobTemplate": {
            "metadata": {"labels": labels(export)},
            "spec": {
                "backoffLimit": 0,  # the next run is the retry
                "activeDeadlineSeconds": export.active_deadline_sec,
                "ttlSecondsAfterFinished": _KEPT_SEC,
                "template": _template(export, cluster, "Never"),
            },
        },
    }


def _deployment(export: ExportSpec, cluster: ClusterSpec) -> dict[str, Any]:
    return {
        "replicas": 0 if export.suspend else 1,
        # The new pod would find the topics' leases held by the old one.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": selector(export)},
        "template": _template(export, cluster, "Always"),
    }


def _template(export: ExportSpec, cluster: ClusterSpec, restart_policy: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels(export), "annotations": dict(export.pod_annotations)},
        "spec": _pod(export, cluster, restart_policy),
    }


def _pod(export: ExportSpec, cluster: ClusterSpec, restart_policy: str) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "restartPolicy": restart_policy,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # SIGTERM lets the export finish the commit in progress.
        "terminationGracePeriodSeconds": export.termination_grace_sec,
        "securityContext": pod_security(),
        "containers": [_container(export, cluster)],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": export.scratch_size}}],
    }
    if cluster.etcd.tls_secret is not None:
        pod["volumes"].append({"name": "etcd-tls", "secret": {"secretName": cluster.etcd.tls_secret}})
    if export.service_account_name is not None:
        pod["serviceAccountName"] = export.service_account_name
    if export.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in export.image_pull_secrets]
    if export.node_selector:
        pod["nodeSelector"] = dict(export.node_selector)
    if export.tolerations:
        pod["tolerations"] = [dict(one) for one in export.tolerations]
    if export.affinity is not None:
        pod["affinity"] = dict(export.affinity)
    return pod


def _container(export: ExportSpec, cluster: ClusterSpec) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": names.EXPORT,
        "image": export.image,
        "imagePullPolicy": export.image_pull_policy,
        "command": command(export),
        "args": arguments(export),
        "env": _environment(export, cluster),
        "securityContext": container_security(),
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    if export.env_secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in export.env_secrets]
    if export.resources:
        container["resources"] = dict(export.resources)
    if export.interval_sec is not None:
        container["ports"] = [{"name": "metrics", "containerPort": names.EXPORT_METRICS_PORT}]
    if cluster.etcd.tls_secret is not None:
        container["volumeMounts"].append(
            {"name": "etcd-tls", "mountPath": broker_settings.TLS_FOLDER, "readOnly": True}
        )
    return container


def _environment(export: ExportSpec, cluster: ClusterSpec) -> list[dict[str, Any]]:
    """The cluster's stores, the credentials, and the export's own variables, which may replace others."""
    stores = {
        name: value.replace("$", "$$")
        for name, value in sorted(broker_settings.environment(cluster).items())
        if name.startswith(_STORES)
    }
    found = [{"name": name, "value": value} for name, value in stores.items()]
    found += [{"name": "HOME", "value": "/tmp"}, {"name": "SPARK_LOCAL_DIRS", "value": "/tmp/spark"}]
    found += store_credentials(
        export.s3_credentials_secret or cluster.objects.credentials_secret, cluster.etcd.credentials_secret
    )
    found += [
        from_secret(f"{SECRET_VARIABLE}{number}", one.secret, one.key)
        for number, one in enumerate(export.catalog.secret_properties)
    ]
    given = [dict(one) for one in export.env]
    replaced = {one.get("name") for one in given}
    return [*(one for one in found if one["name"] not in replaced), *given]
