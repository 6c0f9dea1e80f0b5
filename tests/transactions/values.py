"""Records and events for tests, with what most of them share filled in."""

import uuid
from dataclasses import replace

from kafscale.formats.transaction_record import TransactionRecord, TransactionState, TransactionTopic
from kafscale.transactions.epochs import TV2
from kafscale.transactions.events import Add, End, InitProducer, ProducerIdAndEpoch, TimePassed, Verify

NOW = 1_790_000_000_000
TIMEOUT_MS = 60_000
ORDERS_ID = uuid.UUID("0f2c1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6")
ORDERS = (TransactionTopic("orders", ORDERS_ID, (0, 1)),)
PRODUCER = ProducerIdAndEpoch(4000, 5)
TV1 = 1

EMPTY = TransactionRecord(
    producer_id=PRODUCER.producer_id,
    previous_producer_id=PRODUCER.producer_id,
    producer_epoch=PRODUCER.epoch,
    timeout_ms=TIMEOUT_MS,
    updated_ms=NOW - 1000,
)
ONGOING = replace(
    EMPTY, state=TransactionState.ONGOING, started_ms=NOW - 500, topics=ORDERS, groups=("billing",)
)


def at_epoch(record: TransactionRecord, epoch: int) -> TransactionRecord:
    return replace(record, producer_epoch=epoch)


def init(
    expected: ProducerIdAndEpoch | None = None, *, new_id: int | None = 9000, version: int = TV2
) -> InitProducer:
    return InitProducer(
        now_ms=NOW,
        timeout_ms=30_000,
        transaction_version=version,
        expected=expected,
        new_producer_id=new_id,
    )


def add(
    producer: ProducerIdAndEpoch = PRODUCER,
    topics: tuple[TransactionTopic, ...] = ORDERS,
    groups: tuple[str, ...] = (),
    version: int = TV2,
) -> Add:
    return Add(now_ms=NOW, producer=producer, transaction_version=version, topics=topics, groups=groups)


def verify(
    producer: ProducerIdAndEpoch = PRODUCER,
    topics: tuple[TransactionTopic, ...] = ORDERS,
    groups: tuple[str, ...] = (),
) -> Verify:
    return Verify(producer=producer, topics=topics, groups=groups)


def end(
    producer: ProducerIdAndEpoch = PRODUCER,
    *,
    commit: bool = True,
    version: int = TV2,
    new_id: int | None = 9000,
) -> End:
    return End(
        now_ms=NOW, producer=producer, commit=commit, transaction_version=version, new_producer_id=new_id
    )


def time_passed(now_ms: int = NOW + TIMEOUT_MS, version: int = TV2, new_id: int | None = 9000) -> TimePassed:
    return TimePassed(now_ms=now_ms, transaction_version=version, new_producer_id=new_id)
