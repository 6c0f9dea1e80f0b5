"""A transactional producer and a reader as all clients have them; `clients` and `programs` implement both."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"

Partition = tuple[str, int]

_FENCED: Final = frozenset(
    {
        # Java
        "ProducerFencedException",
        "InvalidProducerEpochException",
        # librdkafka
        "_FENCED",
        # kafka-python and aiokafka
        "ProducerFencedError",
        "InvalidProducerEpochError",
        "ProducerFenced",
        "InvalidProducerEpoch",
        # franz-go and KafkaJS
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
    }
)


class Read(NamedTuple):
    """A record that a reader received."""

    offset: int
    value: bytes


class TransactionError(Exception):
    """A transactional call failed. `kind` is the client's own name of the error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind

    @property
    def is_fenced(self) -> bool:
        """True if the client says that another producer has taken over its transactional id."""
        return self.kind in _FENCED


class TransactionalProducer(Protocol):
    """A producer that has its producer id. Each call may raise `TransactionError`."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Send in the open transaction, and wait until all are acknowledged."""

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None:
        """End it; some clients abort an open transaction then, and some leave it to its timeout."""


class TransactionalClient(Protocol):
    """A client library."""

    name: str
    knows_new_protocol: bool
    """True if it speaks TV2 (KIP-890) with a cluster that has it."""

    def producer(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer: ...
    def read(self, bootstrap: str, topic: str, last: bytes, isolation: str = READ_COMMITTED) -> list[Read]:
        """The records of partition 0 from the first on, up to and with the first one that has the value `last`."""
