"""Everything that must hold of the stores at every moment of a simulated run, and of what clients are told."""

import uuid
from collections.abc import Callable

from kafscale.formats import object_keys
from kafscale.formats.journal_keys import parse_entry_key
from kafscale.formats.partition_record import PartitionRecord, decode_partition_record
from kafscale.formats.topic_record import decode_leader_record, decode_topic_record
from kafscale.formats.transaction_record import decode_transaction_record
from kafscale.journal.partition_state import slice_reference
from kafscale.journal.replay import PlacedSlice
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import KeyValue
from tests.sim.committed_entries import CommittedEntries
from tests.sim.published_log import PublishedLog
from tests.sim.trace import Trace

Fail = Callable[[str], None]

NAMESPACE = "default"


class Invariants:
    """Sees every change of both stores before it is made (`CommitObserver`, `BucketObserver`)."""

    def __init__(self, trace: Trace, bucket: Callable[[str], bytes | None], fail: Fail) -> None:
        self._trace = trace
        self._bucket = bucket
        self._fail = fail
        self._topics: dict[str, TopicRecord] = {}
        self._incarnations: dict[str, int] = {}
        self.logs: dict[tuple[str, int], PublishedLog] = {}
        self.deleted_logs: list[PublishedLog] = []
        self._by_id: dict[tuple[uuid.UUID, int], PublishedLog] = {}
        self._entries = CommittedEntries()

    # --- the metadata store

    def committing(self, origin: str, before: KeyValue | None, after: KeyValue | None, key: str) -> None:
        """See `CommitObserver`."""
        if key.startswith(keys.PARTITIONS):
            self._partition(origin, after, key)
        elif key.startswith(keys.LEADERS):
            self._leader(origin, before, after, key)
        elif key.startswith(keys.TOPICS):
            self._topic(origin, after, key)
        elif key.startswith(keys.COORDINATORS):
            verb = "coordinates" if after is not None else "ends the coordination of"
            self._trace.add(origin, verb, key.removeprefix(keys.COORDINATORS))
        elif key.startswith(keys.TRANSACTIONS):
            state = "gone" if after is None else decode_transaction_record(key, after.value).state.name
            self._trace.add(origin, key, state)
        elif key.startswith((keys.PARTITION_MARKERS, keys.GROUP_MARKERS, keys.PENDING_OFFSETS)):
            self._trace.add(origin, "deletes" if after is None else "puts", key)
        elif key.startswith(keys.BROKERS):
            if before is not None and after is not None and before.lease != after.lease:
                self._fail(f"{origin} replaced the live registration {key}")
            what = "gone" if after is None else after.value.decode()
            self._trace.add(origin, key, what)

    def _topic(self, origin: str, after: KeyValue | None, key: str) -> None:
        name = key.removeprefix(keys.TOPICS)
        if after is None:
            self._trace.add(origin, "frees the name", name)
            del self._topics[name]
            left = [log for log in self.logs.values() if log.name == name]
            if left:
                self._fail(f"the name {name} is free, and it still has partition records")
            return
        record = decode_topic_record(key, after.value)
        self._trace.add(origin, "topic", name, record.state, record.topic_id)
        self._topics[name] = record
        for log in self.logs.values():
            self._of_topic(log)

    def _of_topic(self, log: PublishedLog) -> None:
        """Remember the id of its topic: topics and their partitions are created in one transaction."""
        topic = self._topics.get(log.name)
        if topic is not None and topic.state is TopicState.ACTIVE:
            self._by_id.setdefault((topic.topic_id, log.index), log)

    def _partition(self, origin: str, after: KeyValue | None, key: str) -> None:
        place = keys.topic_and_partition(key)
        log = self.logs.get(place)
        if after is None:
            assert log is not None
            self._trace.add(origin, "removes the record of", str(log))
            topic = self._topics.get(log.name)
            if topic is not None and topic.state is TopicState.ACTIVE:
                self._fail(f"{origin} removed the record of {log}, whose topic is there")
            log.is_deleted = True
            self.deleted_logs.append(self.logs.pop(place))
            return
        record = decode_partition_record(key, after.value)
        if log is None:
            self._create(place, record)
        elif record.leader_epoch != log.record.leader_epoch:
            self._trace.add(origin, "claims", str(log), "epoch", record.leader_epoch)
            log.claimed(record, origin)
        elif record == log.record:
            self._trace.add(origin, "writes the same record of", str(log))
        else:
            start, end = log.record.log_end_offset, record.log_end_offset
            self._trace.add(
                origin,
                f"stores {log} [{start}, {end})",
                "epoch",
                record.leader_epoch,
                record.checkpoint_key if record.checkpoint_key != log.record.checkpoint_key else "",
            )
            log.stored(record, origin)

    def _create(self, place: tuple[str, int], record: PartitionRecord) -> None:
        name, index = place
        if index == 0:
            self._incarnations[name] = self._incarnations.get(name, 0) + 1
        incarnation = self._incarnations[name]
        log = PublishedLog(
            name=name,
            topic=f"{name}#{incarnation}",
            index=index,
            namespace=NAMESPACE,
            bucket=self._bucket,
            fail=self._fail,
            record=record,
        )
        self._of_topic(log)
        if log.record.log_end_offset or log.record.segments or log.record.checkpoint_key:
            self._fail(f"{log} begins with something: {record}")
        former = [old.record.leader_epoch for old in self.deleted_logs if (old.name, old.index) == place]
        if former and log.record.leader_epoch < max(former):
            self._fail(
                f"{log} begins with epoch {log.record.leader_epoch}, its name had {max(former)} before"
            )
        self.logs[place] = log

    def _leader(self, origin: str, before: KeyValue | None, after: KeyValue | None, key: str) -> None:
        name, index = keys.topic_and_partition(key)
        if after is None:
            self._trace.add(origin, f"ends the leadership of {name}-{index}")
            return
        leader = decode_leader_record(key, after.value)
        log = self.logs.get((name, index))
        if log is None:
            self._fail(f"{origin} leads {name}-{index}, which is not there")
        elif log.record.leader_epoch != leader.leader_epoch:
            self._fail(f"{origin} leads {log} with epoch {leader.leader_epoch}, the record says otherwise")
        if before is not None:
            self._fail(f"{origin} leads {name}-{index} though it had a leader: {before.value!r}")
        if not after.lease or not origin.startswith(f"b{leader.broker_id}."):
            self._fail(f"{origin} wrote the leader {leader} of {name}-{index}, lease {after.lease}")

    # --- the bucket

    def writing(self, origin: str, key: str, before: bytes | None, after: bytes) -> None:
        """See `BucketObserver`."""
        self._trace.add(origin, "stores", key, len(after), "" if before is None else "over another")
        if before is not None and before != after and key.endswith((".kfs", ".ckpt", ".entry", ".gathered")):
            self._fail(f"{origin} wrote over {key}")
        entry = parse_entry_key(key)
        if entry is not None:
            for journal_id, placed, data in self._entries.stored(entry, after):
                self._commit(journal_id, placed, data)

    def deleting(self, origin: str, key: str) -> None:
        """See `BucketObserver`."""
        self._trace.add(origin, "deletes", key)
        for needing in self.logs.values():
            if key in needing.needed_keys():
                self._fail(f"{origin} deleted {key}, which {needing} needs")
        log = self._log_of(key)
        if log is not None and key == log.record.checkpoint_key:
            self._fail(f"{origin} deleted {key}, the checkpoint of {log}")

    def _commit(self, journal_id: str, placed: PlacedSlice, data: bytes) -> None:
        one = placed.slice
        log = self._by_id.get((one.topic_id, one.partition))
        if log is None:
            self._fail(f"a slice of {one.topic}-{one.partition} {one.topic_id}, which never was")
        else:
            self._trace.add("bucket", f"commits {log} [{one.base_offset}, {one.last_offset}]")
            log.committed(slice_reference(NAMESPACE, journal_id, placed), data)

    def _log_of(self, key: str) -> PublishedLog | None:
        parsed = object_keys.parse_segment_key(key) or object_keys.parse_checkpoint_key(key)
        return None if parsed is None else self.logs.get((parsed.topic, parsed.partition))

    # --- what clients are told

    def log_with(self, name: str, index: int, offset: int, value: bytes) -> PublishedLog | None:
        """Where the value is published at the offset: in the log of this name, or a deleted one that had it."""
        current = self.logs.get((name, index))
        former = [log for log in self.deleted_logs if (log.name, log.index) == (name, index)]
        for log in ([] if current is None else [current]) + former[::-1]:
            if log.values.get(offset) == value:
                return log
        return None

    def acknowledged(self, who: str, name: str, index: int, offset: int, value: bytes) -> PublishedLog | None:
        """`who` was told that its record is at the offset."""
        log = self.log_with(name, index, offset, value)
        if log is None:
            self._fail(
                f"{who} was told that {value!r} is at {name}-{index} offset {offset}: it is not published"
            )
        return log

    def acknowledged_somewhere(
        self, who: str, name: str, index: int, value: bytes
    ) -> tuple[PublishedLog, int] | None:
        """`who` was told that its record is stored, and not where: the log and its offset there."""
        former = [log for log in self.deleted_logs if (log.name, log.index) == (name, index)]
        current = self.logs.get((name, index))
        for log in ([] if current is None else [current]) + former[::-1]:
            for offset, published in log.values.items():
                if published == value:
                    return log, offset
        self._fail(f"{who} was told that {value!r} is in {name}-{index}: it is not published")
        return None

    def seen(self, who: str, log: PublishedLog, position: int, offset: int, value: bytes) -> None:
        """`who` read a record, having asked for those from `position` on."""
        if log.values.get(offset) != value:
            self._fail(
                f"{who} read {value!r} at {log} offset {offset}, published is {log.values.get(offset)!r}"
            )
        due = next((one for one in log.published_from(position) if one not in log.removed), None)
        if offset in log.removed:
            due = next(log.published_from(position), None)
        if due is not None and due != offset:
            self._fail(f"{who} read offset {offset} of {log} where {due} was due, from {position} on")

    def check_end(self) -> None:
        """At the end of the run."""
        for log in self.logs.values():
            log.check_end()
