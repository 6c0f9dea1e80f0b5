"""Share groups' partitions of a broker: their parts put together."""

from collections.abc import Callable

from kafscale.cluster.view import ClusterView
from kafscale.log.manager import LogManager
from kafscale.metadata.store import MetadataStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.sharing.service import ShareService
from kafscale.serving.sharing.shared_log import PartitionLogOfLeader
from kafscale.share.partition.share_partition import ShareLimits
from kafscale.share.share_partitions import SharedLog, SharePartitions, SharePolicy
from kafscale.share.state.starts import ShareStarts
from kafscale.share.state.writer import ShareStateWriter


class SharingParts:
    """What serves share fetches and acknowledgements."""

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        logs: LogManager,
        metrics: Metrics,
        now_ms: Callable[[], int],
    ) -> None:
        failures = ItemFailures(BackgroundWork.SHARE_STATES, metrics.background_failures)
        self._logs = logs
        self._states = ShareStateWriter(store)
        self.starts = ShareStarts(store, failures)
        partitions = SharePartitions(
            self._states, self.starts, self._policy, self._first_offset, now_ms, failures
        )
        self.service = ShareService(view, logs, partitions, self._policy, session_limit=2_000)

    def start(self) -> None:
        """Begin to watch the groups' starts."""
        self.starts.start()

    async def close(self) -> None:
        """Give up all share partitions."""
        await self.service.close()
        await self.starts.close()
        await self._states.close()

    def _policy(self, group_id: str) -> SharePolicy:
        return SharePolicy(ShareLimits())

    async def _first_offset(self, group_id: str, log: SharedLog) -> int:
        assert isinstance(log, PartitionLogOfLeader)
        partition = log.partition
        if await self._logs.open(partition) is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
        return partition.record.log_end_offset
