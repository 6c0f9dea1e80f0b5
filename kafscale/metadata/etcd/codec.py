"""Keys, values and transactions as etcd has them: below the cluster's prefix, in its messages."""

from collections.abc import Sequence

from aetcd import rpc

from kafscale.metadata.store import (
    Compare,
    Delete,
    KeyValue,
    Operation,
    Put,
    TransactionResult,
)


class EtcdCodec:
    """Translates for one cluster; `prefix` stands before each of its keys, with a `/` between."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}/".encode()

    @property
    def prefix(self) -> bytes:
        """The first part of all keys of the cluster, and of no other cluster's."""
        return self._prefix

    def key(self, key: str) -> bytes:
        """The key in etcd."""
        return self._prefix + key.encode()

    def range(self, prefix: str) -> tuple[bytes, bytes]:
        """The first key under a prefix and the first one behind it."""
        first = self.key(prefix)
        # UTF-8 has no byte 0xff, and the cluster's prefix is not empty: the last byte can always grow.
        return first, first[:-1] + bytes([first[-1] + 1])

    def item(self, found: rpc.KeyValue) -> KeyValue:
        """A key of the cluster as etcd has it."""
        return KeyValue(
            key=self._relative(found.key),
            value=found.value,
            mod_revision=found.mod_revision,
            lease=found.lease,
        )

    def change(self, event: rpc.Event) -> KeyValue | Delete:
        """The change that an event of a watch reports."""
        if event.type == rpc.Event.DELETE:
            return Delete(self._relative(event.kv.key))
        return self.item(event.kv)

    def transaction(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> rpc.TxnRequest:
        """The request; when a compare fails it reads what each of them looked at."""
        reads = (rpc.RangeRequest(key=self.key(compare.key)) for compare in compares)
        return rpc.TxnRequest(
            compare=[self._compare(compare) for compare in compares],
            success=[self._operation(operation) for operation in operations],
            failure=[rpc.RequestOp(request_range=read) for read in reads],
        )

    def result(self, response: rpc.TxnResponse) -> TransactionResult:
        """The answer to a `transaction`."""
        if response.succeeded:
            return TransactionResult(succeeded=True, revision=response.header.revision)
        reads = (answer.response_range.kvs for answer in response.responses)
        return TransactionResult(
            succeeded=False,
            revision=response.header.revision,
            found=tuple(self.item(found[0]) if found else None for found in reads),
        )

    def _relative(self, key: bytes) -> str:
        return key[len(self._prefix) :].decode()

    def _compare(self, compare: Compare) -> rpc.Compare:
        # To etcd, too, a key that is not there is one of revision 0, `ABSENT`.
        return rpc.Compare(
            key=self.key(compare.key),
            target=rpc.Compare.MOD,
            result=rpc.Compare.EQUAL,
            mod_revision=compare.mod_revision,
        )

    def _operation(self, operation: Operation) -> rpc.RequestOp:
        key = self.key(operation.key)
        if isinstance(operation, Put):
            put = rpc.PutRequest(key=key, value=operation.value, lease=operation.lease)
            return rpc.RequestOp(request_put=put)
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))
