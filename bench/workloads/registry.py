"""All workloads by name, in the order in which they run."""

from bench.workloads.cluster import CLUSTER
from bench.workloads.cold import COLD
from bench.workloads.connections import CONNECTIONS
from bench.workloads.consumer_groups import CONSUMER_GROUPS
from bench.workloads.durable import DURABLE
from bench.workloads.frames import FRAMES
from bench.workloads.groups import GROUPS
from bench.workloads.latency import LATENCY
from bench.workloads.limited import LIMITED
from bench.workloads.share_groups import SHARE_GROUPS
from bench.workloads.standing import STANDING
from bench.workloads.throughput import THROUGHPUT
from bench.workloads.tiny import TINY
from bench.workloads.transactions import TRANSACTIONS
from bench.workloads.workload import Workload

_ALL = (
    THROUGHPUT, COLD, TINY, FRAMES, LATENCY, LIMITED, STANDING, CONNECTIONS, GROUPS, CONSUMER_GROUPS,
    SHARE_GROUPS, TRANSACTIONS, CLUSTER, DURABLE,
)  # fmt: skip
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}
