"""Every metric that the operator exports."""

from typing import Final

from kafscale.operator import operator_metrics, resource_metrics
from kafscale.operator.backups import metrics as backup_metrics
from kafscale.operator.etcd import metrics as etcd_metrics
from kafscale.operator.exports import metrics as export_metrics
from kafscale.ops.metric_families import Family

FAMILIES: Final[tuple[Family, ...]] = (
    *operator_metrics.FAMILIES,
    *backup_metrics.FAMILIES,
    *etcd_metrics.FAMILIES,
    *resource_metrics.FAMILIES,
    *export_metrics.FAMILIES,
)
