"""The events of a transactional id: requests of clients, and what the coordinator finds by itself. Values."""

from dataclasses import dataclass
from typing import NamedTuple

from kafscale.formats.transaction_record import TransactionTopic
from kafscale.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class ProducerIdAndEpoch(NamedTuple):
    """A producer as it names itself, or is to name itself from now on."""

    producer_id: int
    epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """InitProducerId with a transactional id.

    `expected`: the producer that the client has been until now (KIP-360), None for a client that begins.
    `transaction_version`: the finalized one. `new_producer_id`: an unused id, if one was drawn.
    """

    now_ms: int
    timeout_ms: int
    transaction_version: int
    expected: ProducerIdAndEpoch | None = None
    new_producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """AddPartitionsToTxn, AddOffsetsToTxn, and what TV2 adds at a partition's leader and a group's coordinator.

    `topics` and `groups`: ascending by name, without repetitions. `transaction_version`: the client's.
    """

    now_ms: int
    producer: ProducerIdAndEpoch
    transaction_version: int
    topics: tuple[TransactionTopic, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """The question whether these are in the producer's transaction (KIP-890 part 1). Changes nothing."""

    producer: ProducerIdAndEpoch
    topics: tuple[TransactionTopic, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """EndTxn. `transaction_version`: the client's. `new_producer_id`: an unused id, if one was drawn."""

    now_ms: int
    producer: ProducerIdAndEpoch
    commit: bool
    transaction_version: int
    new_producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """The coordinator looks whether the transaction has timed out. `transaction_version`: the finalized one."""

    now_ms: int
    transaction_version: int
    new_producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersStored:
    """Every marker key of the decision was put."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersGone:
    """Every partition and group in the transaction has its marker."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """The coordinator looks whether the transactional id was unused for `expiration_ms`."""

    now_ms: int
    expiration_ms: int


Event = InitProducer | Add | Verify | End | TimePassed | MarkersStored | MarkersGone | Expire
EVENTS: tuple[type[Event], ...] = (
    InitProducer,
    Add,
    Verify,
    End,
    TimePassed,
    MarkersStored,
    MarkersGone,
    Expire,
)
