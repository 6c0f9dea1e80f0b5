"""Whatever happens to a transactional id, its record keeps what the protocol rests on.

A walk takes random steps from a seed: clients that begin, go on, are replaced or repeat themselves, time that passes,
markers that are written. After each step the record before and after are compared.
"""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.transaction_record import (
    TransactionRecord,
    TransactionState,
    TransactionTopic,
    decode_transaction_record,
    encode_transaction_record,
)
from kafscale.transactions.decisions import NeedProducerId, Remove, Reply, Store
from kafscale.transactions.epochs import LAST_USABLE_EPOCH, MAX_EPOCH
from kafscale.transactions.events import (
    NO_PRODUCER,
    Add,
    End,
    Event,
    Expire,
    InitProducer,
    MarkersGone,
    MarkersStored,
    ProducerIdAndEpoch,
    TimePassed,
    Verify,
)
from kafscale.transactions.machine import TABLE, decide, state_of
from tests.transactions.values import ORDERS_ID

PREPARING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
TIMEOUT_MS = 1000


class Walk:
    """A transactional id, and the producers that clients were ever told to be."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.record: TransactionRecord | None = None
        self.now_ms = 0
        self.next_id = 1
        self.told = [ProducerIdAndEpoch(0, 0)]
        self.current = NO_PRODUCER
        self.ends: dict[ProducerIdAndEpoch, bool] = {}

    def producer(self) -> ProducerIdAndEpoch:
        """The current producer mostly, or one from before."""
        return self.current if self.random.random() < 0.7 else self.random.choice(self.told)

    def event(self) -> Event:
        """Something at random."""
        version = self.random.choice((1, 2))
        topics = (TransactionTopic("orders", ORDERS_ID, (self.random.randrange(3),)),)
        self.now_ms += self.random.choice((0, 1, 300, 2000))
        match self.random.randrange(10):
            case 0:
                return InitProducer(
                    now_ms=self.now_ms,
                    timeout_ms=TIMEOUT_MS,
                    transaction_version=version,
                    expected=self.random.choice((None, self.producer())),
                )
            case 1 | 2:
                return Add(
                    now_ms=self.now_ms, producer=self.producer(), transaction_version=version, topics=topics
                )
            case 3:
                return Verify(producer=self.producer(), topics=topics)
            case 4 | 5 | 6:
                return End(
                    now_ms=self.now_ms,
                    producer=self.producer(),
                    commit=self.random.random() < 0.5,
                    transaction_version=version,
                )
            case 7:
                return TimePassed(now_ms=self.now_ms, transaction_version=version)
            case 8:
                return self.random.choice((MarkersStored(), MarkersGone(now_ms=self.now_ms)))
            case _:
                return Expire(now_ms=self.now_ms, expiration_ms=5000)

    def step(self) -> None:
        """Apply an event, and check what follows."""
        event = self.event()
        before, decision = self.record, decide(self.record, event)
        if isinstance(decision, NeedProducerId):
            assert isinstance(event, InitProducer | End | TimePassed)
            self.next_id += 1
            event = replace(event, new_producer_id=self.next_id)
            decision = decide(before, event)
            assert not isinstance(decision, NeedProducerId)
        row = TABLE[state_of(before), type(event)]
        match decision:
            case Store(record, then):
                self.record = record
                assert record.state in row.to
                self.check_step(before, record)
                assert isinstance(event, InitProducer) or not isinstance(event, Verify)
                if isinstance(then, Reply) and then.producer != NO_PRODUCER:
                    self.tell(then.producer)
            case Remove():
                assert TransactionState.DEAD in row.to
                self.record, self.current = None, NO_PRODUCER
            case _:
                assert state_of(before) in row.to
        if isinstance(event, Add) and isinstance(decision, Store | Reply):
            assert self.record is not None
            assert self.record.state is TransactionState.ONGOING
            assert event.producer == (self.record.producer_id, self.record.producer_epoch)

    def tell(self, producer: ProducerIdAndEpoch) -> None:
        assert producer.epoch <= LAST_USABLE_EPOCH
        self.current = producer
        self.told.append(producer)

    def check_step(self, before: TransactionRecord | None, after: TransactionRecord) -> None:
        """Check what holds between a record and the next."""
        assert decode_transaction_record("record", encode_transaction_record(after)) == after
        assert 0 <= after.producer_epoch <= MAX_EPOCH
        if before is None:
            return
        if after.producer_id == before.producer_id:
            assert before.producer_epoch <= after.producer_epoch <= before.producer_epoch + 1
        else:
            assert after.producer_epoch == 0
            assert after.previous_producer_id == before.producer_id
            assert after.producer_id > before.producer_id
        if after.state in PREPARING and before.state is TransactionState.ONGOING:
            assert (after.topics, after.groups) == (before.topics, before.groups)
        if before.state in PREPARING:
            # A decision stands, and nothing new begins until it is carried out.
            is_commit = before.state is TransactionState.PREPARE_COMMIT
            complete = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
            assert after.state in (before.state, complete)
        if before.state is after.state is TransactionState.ONGOING:
            assert set(before.partitions()) <= set(after.partitions())


@given(st.integers(0, 2**32 - 1), st.integers(1, 120))
def test_a_walk_keeps_the_promises(seed: int, steps: int) -> None:
    walk = Walk(seed)
    for _ in range(steps):
        walk.step()


@given(st.integers(0, 2**32 - 1))
def test_a_walk_at_the_end_of_the_epochs_keeps_them(seed: int) -> None:
    walk = Walk(seed)
    walk.step()
    while walk.record is None:
        walk.step()
    near = LAST_USABLE_EPOCH - walk.random.randrange(3)
    walk.record = replace(walk.record, producer_epoch=near)
    walk.tell(ProducerIdAndEpoch(walk.record.producer_id, near))
    for _ in range(60):
        walk.step()
