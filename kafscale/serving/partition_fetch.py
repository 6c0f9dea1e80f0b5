"""One partition of a fetch: the client's wishes, and the reasons not to serve them."""

from dataclasses import dataclass
from typing import Final

from kafscale.log.partition import Partition
from kafscale.metadata.model import NO_BROKER
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.fetch import FetchPartition

NO_OFFSET: Final = -1


@dataclass(slots=True)
class PartitionFetch:
    """One partition of the request; `partition` is None when this broker cannot serve it.

    `unknown`: the error for a partition that does not exist, which depends on how the request named it.
    `load_error_code`: why not all could be read from the store. `to_follow`: the topic of a partition that another
    broker leads and that must be followed before it can be read. `preferred_read_replica`: the broker that the
    client should read from instead (KIP-392). `reads_committed`: the client sees only what is below the last stable
    offset.
    """

    wanted: FetchPartition
    partition: Partition | None
    unknown: ErrorCode
    error_code: ErrorCode = ErrorCode.NONE
    load_error_code: ErrorCode = ErrorCode.NONE
    to_follow: str | None = None
    preferred_read_replica: int = NO_BROKER
    reads_committed: bool = False

    @property
    def end_offset(self) -> int:
        """The end of what the client may read as it is now."""
        partition = self.partition
        if partition is None:
            return NO_OFFSET
        return partition.last_stable_offset if self.reads_committed else partition.record.log_end_offset

    @property
    def stable_end(self) -> int | None:
        """The offset at which a read must end; None if all that is published may be read."""
        return self.end_offset if self.reads_committed else None

    def check_offset(self) -> None:
        """Refuse an offset below the log start offset as it is now.

        One above the end is `is_above_end`, which the metadata store decides.
        """
        if self.error_code or self.partition is None:
            return
        if self.wanted.fetch_offset < self.partition.record.log_start_offset:
            self.error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    @property
    def is_above_end(self) -> bool:
        """True if the offset is above the log end offset as this broker knows it."""
        return (
            self.partition is not None
            and not self.error_code
            and self.wanted.fetch_offset > self.partition.record.log_end_offset
        )

    def available_bytes(self, enough: int) -> int:
        """About how many bytes there are to read from the offset on; counting stops at `enough`."""
        if self.error_code or self.partition is None or self.preferred_read_replica != NO_BROKER:
            return 0
        end_offset = self.end_offset
        if self.wanted.fetch_offset >= end_offset:
            return 0
        if self.partition.references is None:
            return enough
        available = 0
        for reference in self.partition.references.from_offset(self.wanted.fetch_offset):
            if reference.base_offset >= end_offset:
                break
            available += reference.size_bytes
            if available >= enough:
                break
        return available


@dataclass(slots=True)
class TopicFetch:
    """The partitions of one topic of the request, named as the request named it."""

    name: str | None
    topic_id: bytes | None
    partitions: list[PartitionFetch]
