"""One watch of keys in etcd: its position, and the events that it has received and not delivered yet."""

from collections.abc import Sequence

from aetcd import rpc

from kafscale.metadata.etcd.codec import EtcdCodec
from kafscale.metadata.store import Changes, Delete, KeyValue
from kafscale.metadata.watch_backlog import WatchBacklog, size_bytes


class EtcdWatcher(WatchBacklog):
    """A watch of the keys from `first` on, before `end`; an empty `end`: of the key `first` alone.

    `watch_id` is 0 while etcd is not asked for its changes: before a snapshot was read, or when one is needed.
    """

    def __init__(self, codec: EtcdCodec, first: bytes, end: bytes, max_backlog_bytes: int) -> None:
        super().__init__(lambda _: True, max_backlog_bytes)
        self.watch_id = 0
        self.next_revision = 0
        self._codec = codec
        self.first = first
        self._end = end
        self._fragments: list[KeyValue | Delete] = []
        self._fragments_bytes = 0
        self._fragments_revision = 0

    def begin(self, watch_id: int, snapshot_revision: int) -> None:
        """A snapshot was read: from now on the changes after it are requested, under this id."""
        self.watch_id = watch_id
        self.next_revision = snapshot_revision + 1
        self.needs_snapshot = False

    def create_request(self) -> rpc.WatchRequest:
        """Requests every change from `next_revision` on, and drops the fragments of a broken stream."""
        self._forget_fragments()
        return rpc.WatchRequest(
            create_request=rpc.WatchCreateRequest(
                key=self.first,
                range_end=self._end,
                start_revision=self.next_revision,
                watch_id=self.watch_id,
                fragment=True,
                progress_notify=True,
            )
        )

    def take_response(self, response: rpc.WatchResponse) -> None:
        """Take in events, or how far the watch has come. A transaction may go over several fragments."""
        if not self.needs_snapshot:
            self._add_fragment(response.events)
        if response.fragment or self.needs_snapshot:
            return
        if self._fragments:
            changes = Changes(puts_and_deletes=tuple(self._fragments), revision=self._fragments_revision)
            self._forget_fragments()
            # Only now: a transaction of which a break lost a part is requested again.
            self.next_revision = changes.revision + 1
            self.add(changes)
        elif not response.events and not response.created:
            # A progress notification, which etcd sends to a watch that has received everything.
            self.next_revision = max(self.next_revision, response.header.revision + 1)

    def start_over(self) -> None:
        """Forget everything: a snapshot must come next."""
        super().start_over()
        self.watch_id = 0
        self._forget_fragments()

    def _add_fragment(self, events: Sequence[rpc.Event]) -> None:
        for event in events:
            # A member that lags behind the one before it may begin earlier than it was asked to.
            if event.kv.mod_revision < self.next_revision:
                continue
            change = self._codec.change(event)
            self._fragments.append(change)
            self._fragments_bytes += size_bytes(change)
            self._fragments_revision = event.kv.mod_revision
        if self._fragments_bytes > self._max_backlog_bytes:
            self.start_over()

    def _forget_fragments(self) -> None:
        self._fragments = []
        self._fragments_bytes = 0
