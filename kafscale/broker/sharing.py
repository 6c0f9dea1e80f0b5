"""Share groups' partitions of a broker: their parts put together."""

from kafscale.clocks import Clocks
from kafscale.cluster.group_configs import GroupConfigs, ShareIsolation
from kafscale.cluster.offset_reset import ResetTo
from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.reading.timestamp_search import find_at_or_after
from kafscale.metadata.store import MetadataStore
from kafscale.ops import share_metric_families as families
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.sharing.service import ShareService
from kafscale.serving.sharing.shared_log import PartitionLogOfLeader
from kafscale.serving.store_deadline import store_deadline
from kafscale.settings.broker import Settings
from kafscale.share.partition.share_partition import ShareLimits
from kafscale.share.share_partitions import NOT_LEADER, SharedLog, SharePartitions, SharePolicy
from kafscale.share.state.starts import ShareStarts
from kafscale.share.state.writer import ShareStateWriter


class SharingParts:
    """The parts that serve share fetches and acknowledgements."""

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        logs: LogManager,
        settings: Settings,
        metrics: Metrics,
        clocks: Clocks,
    ) -> None:
        failures = ItemFailures(BackgroundWork.SHARE_STATES, metrics.background_failures)
        self._logs = logs
        self._settings = settings
        self._now_ms = clocks.now_ms
        self._configs = GroupConfigs(view, settings)
        self._states = ShareStateWriter(store)
        self.starts = ShareStarts(store, failures)
        partitions = SharePartitions(
            self._states,
            self.starts,
            self._policy,
            self._first_offset,
            clocks.steady_ms,
            failures,
            metrics.shares,
        )
        session_limit = settings.group_share_max_share_sessions
        self.service = ShareService(view, logs, partitions, self._policy, session_limit)
        metrics.gauge(families.SESSIONS, lambda: len(self.service.sessions))
        metrics.gauge(families.SESSIONS_LIMIT, lambda: session_limit)
        metrics.gauge(families.PARTITIONS_OPEN, lambda: len(partitions))
        metrics.gauge(families.RUNS, lambda: partitions.budget.used)
        metrics.gauge(families.RUNS_LIMIT, lambda: partitions.budget.limit)

    def start(self) -> None:
        """Begin to watch the groups' starts."""
        self.starts.start()

    async def close(self) -> None:
        """Give up all share partitions."""
        await self.service.close()
        await self.starts.close()
        await self._states.close()

    def _policy(self, group_id: str) -> SharePolicy:
        configs, settings = self._configs.sharing(group_id), self._settings
        limits = ShareLimits(
            configs.record_lock_duration_ms,
            settings.group_share_delivery_count_limit,
            settings.group_share_partition_max_record_locks,
        )
        return SharePolicy(limits, configs.isolation is ShareIsolation.READ_COMMITTED)

    async def _first_offset(self, group_id: str, log: SharedLog) -> int:
        assert isinstance(log, PartitionLogOfLeader)
        try:
            async with store_deadline():
                return await self._find_first(group_id, log.partition)
        except StoreError as problem:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log could not be read") from problem
        except CorruptDataError as problem:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the records are damaged") from problem

    async def _find_first(self, group_id: str, partition: Partition) -> int:
        if await self._logs.open(partition) is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADER)
        reset = self._configs.sharing(group_id).offset_reset
        # Before the search: a record that arrives during it is not to be passed over.
        end_offset = partition.record.log_end_offset
        match reset.to:
            case ResetTo.LATEST:
                return end_offset
            case ResetTo.EARLIEST:
                return partition.record.log_start_offset
            case ResetTo.BY_DURATION:
                since_ms = max(self._now_ms() - reset.duration_ms, 0)
                found = await find_at_or_after(self._logs, partition, since_ms)
                # Kafka refuses each fetch until there is such a record, which then is the next one, or a later one.
                return end_offset if found is None else found[0]
