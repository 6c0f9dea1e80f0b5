"""Transactional clients of a simulated cluster: they read, process, write, and commit all of it, or none.

Each job has one transactional id and one input partition. An instance that vanishes, or is taken for dead while it
lives, is followed by another one: then two of them work, until one is fenced.
"""

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

from kafka.protocol.consumer import FetchResponse, OffsetFetchResponse
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceResponse,
    TxnOffsetCommitResponse,
)

from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.sim import transaction_frames as frames
from tests.sim.published_log import PublishedLog
from tests.sim.simulated_broker import START_MS, SimulatedBroker
from tests.sim.simulated_clients import FETCH_RETRIABLE, Client, Surroundings
from tests.sim.simulated_connection import DisconnectedError
from tests.support.transaction_checker import Outcome
from tests.support.transaction_history import OpenTransaction, TransactionHistory

REQUEST_SEC = 6.0
PATIENCE_SEC = 12.0
"""How long one step of a transaction is tried before the client gives it up."""

RETRIABLE = {
    *FETCH_RETRIABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
ABORTABLE = {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}


class FencedError(Exception):
    """Another instance has the transactional id, or the transaction has timed out."""


class AbortError(Exception):
    """The transaction can only be aborted."""


@dataclass(slots=True, kw_only=True)
class TransactionLoad:
    """How much a job does, and how. Times in seconds."""

    transactions: int = 5
    version: int = 2
    timeout: float = 10.0
    longest_pause: float = 1.0
    abort_rate: float = 0.2
    vanish_rate: float = 0.1
    zombie_rate: float = 0.15


class Job:
    """One transactional id, its group, and its instances. `outputs`: the partitions that it writes to."""

    def __init__(
        self,
        name: str,
        around: Surroundings,
        history: TransactionHistory,
        load: TransactionLoad,
        source: PublishedLog,
        source_id: uuid.UUID,
        outputs: list[PublishedLog],
    ) -> None:
        self.name = name
        self.around = around
        self.history = history
        self.load = load
        self.source = source
        self.source_id = source_id
        self.outputs = outputs
        self.unfinished = load.transactions
        self.instances = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> tuple[str, int]:
        """The input partition, as this group's."""
        return f"{self.name} of {self.source.topic}", self.source.index

    async def run(self) -> None:
        """Until enough transactions were committed."""
        self.begin_instance()
        try:
            while self._tasks:
                done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in self._tasks:
                task.cancel()

    def begin_instance(self) -> None:
        """One more, which takes the transactional id over."""
        self.instances += 1
        instance = Instance(self, self.instances)
        self._tasks.add(asyncio.create_task(instance.run(), name=instance.name))


class Instance(Client):
    """One producer with the job's transactional id. Its requests are one at a time."""

    def __init__(self, job: Job, number: int) -> None:
        super().__init__(f"{job.name}.{number}", job.around)
        self._job = job
        self._number = number
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._version = job.load.version
        self._made = 0

    def _is_newest(self) -> bool:
        return self._number == self._job.instances

    def _say(self, *what: object) -> None:
        self.around.trace.add(self.name, *what)

    async def run(self) -> None:
        """Transaction after transaction, until it is fenced or the job is done."""
        try:
            await self._initialize(again=False)
            while self._job.unfinished:
                await self.rest(self._job.load.longest_pause)
                if not await self._transaction():
                    return  # It has vanished.
        except FencedError:
            self._say("is fenced")
            if self._is_newest() and self._job.unfinished:
                # Its transaction has timed out.
                self._job.begin_instance()

    # --- requests

    async def _to_coordinator(self, request: Any, response: Any, version: int, codes: Any) -> Any:
        """The answer without an error that may pass. Raises the errors of `_check`."""

        def coordinator() -> SimulatedBroker | None:
            up = self.around.brokers_up()
            shard = keys.shard_of(self._job.name)
            found = self.rng.choice(up).view.coordinator(shard) if up else None
            return None if found is None else self.around.broker(found)

        return await self._until_answered(coordinator, request, response, version, codes)

    async def _to_leader(
        self, log: PublishedLog, request: Any, response: Any, version: int, codes: Any
    ) -> Any:
        return await self._until_answered(
            lambda: self.leader(log.name, log.index)[0], request, response, version, codes
        )

    async def _until_answered(self, find: Any, request: Any, response: Any, version: int, codes: Any) -> Any:
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_SEC
        frame = frames.encoded(request, version)
        what = type(request).__name__
        is_doubtful = False
        while True:
            broker = find()
            if broker is not None:
                try:
                    answer = frames.decoded(response, await self.ask(broker, frame, REQUEST_SEC), version)
                except DisconnectedError:
                    is_doubtful = True
                    self._say(what, "is not answered by", broker.name)
                else:
                    code = ErrorCode(codes(answer))
                    if code is not ErrorCode.NONE:
                        self._say(what, "hears", code.name, "from", broker.name)
                    if code not in RETRIABLE:
                        self._check(what, code, is_doubtful)
                        return answer
                    is_doubtful = is_doubtful or code is ErrorCode.REQUEST_TIMED_OUT
            if loop.time() > until and what not in ("InitProducerIdRequest", "EndTxnRequest"):
                raise AbortError
            await self.rest(0.4)

    def _check(self, what: str, code: ErrorCode, is_doubtful: bool) -> None:
        if code in FENCED:
            self._fenced_in_doubt = is_doubtful
            raise FencedError
        if code in ABORTABLE:
            self._fenced_in_doubt = is_doubtful
            raise AbortError
        if code is not ErrorCode.NONE and code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.around.fail(f"{self.name}: {what} was refused with {code.name}")
            raise AbortError

    _fenced_in_doubt = False

    # --- the transaction

    async def _initialize(self, *, again: bool) -> None:
        producer = self._producer if again else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self._job.name,
            transaction_timeout_ms=int(self._job.load.timeout * 1000),
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        answer = await self._to_coordinator(request, InitProducerIdResponse, 4, lambda one: one.error_code)
        self._become((answer.producer_id, answer.producer_epoch))

    def _become(self, producer: tuple[int, int]) -> None:
        if producer != self._producer:
            self._producer, self._sequences = producer, {}
            self._say("is producer", *producer)

    async def _transaction(self) -> bool:
        """One transaction, whatever its end. False if this instance has vanished in the middle."""
        load = self._job.load
        try:
            position = await self._position()
            inputs = await self._read(position)
        except AbortError:
            return True
        if not inputs:
            return True
        one = self._job.history.begin(self._job.name)
        self._say("begins", one.name, "with input", inputs[0][0])
        try:
            await self._fill(one, inputs)
        except AbortError:
            await self._abort(one, is_clean=False)
            return True
        luck = self.rng.random()
        if luck < load.vanish_rate:
            self._say("vanishes")
            self._job.begin_instance()
            return False
        if luck < load.vanish_rate + load.zombie_rate and self._is_newest():
            self._say("is taken for dead")
            self._job.begin_instance()
        if self.rng.random() < load.abort_rate:
            await self._abort(one, is_clean=True)
        else:
            await self._commit(one)
        return True

    async def _position(self) -> int:
        request = frames.position_request(self._job.name, self._job.source.name, self._job.source.index)

        def code(answer: Any) -> int:
            return int(answer.error_code or answer.topics[0].partitions[0].error_code)

        answer = await self._to_coordinator(request, OffsetFetchResponse, frames.OFFSET_FETCH_VERSION, code)
        return max(0, int(answer.topics[0].partitions[0].committed_offset))

    async def _read(self, position: int) -> list[tuple[int, bytes]]:
        source = self._job.source
        request = frames.fetch_request(
            self._job.source_id, source.index, position, committed=True, max_bytes=1 << 20
        )

        def code(answer: Any) -> int:
            return int(answer.error_code or frames.fetched(answer, position).error_code)

        answer = await self._to_leader(source, request, FetchResponse, frames.FETCH_VERSION, code)
        return frames.fetched(answer, position).records[: self.rng.randrange(1, 4)]

    async def _fill(self, one: OpenTransaction, inputs: list[tuple[int, bytes]]) -> None:
        outputs = [self.rng.choice(self._job.outputs) for _ in inputs]
        self._made += 1
        if self._version == 1:
            await self._add(outputs)
        for (offset, value), log in zip(inputs, outputs, strict=True):
            one.reads.append((self._job.place, (offset, value)))
            await self._produce(one, log, b"%s:%d:%d" % (one.name.encode(), self._made, offset))
            await self.rest(self._job.load.longest_pause / 4)
        request = frames.offsets_request(
            self._job.name,
            self._job.name,
            self._producer,
            self._job.source.name,
            self._job.source.index,
            inputs[-1][0] + 1,
        )
        version = 3 if self._version == 1 else 5
        await self._to_coordinator(
            request, TxnOffsetCommitResponse, version, lambda one: one.topics[0].partitions[0].error_code
        )
        await self.rest(self.rng.choice((0.1, 0.1, 1.5)) * self._job.load.timeout)

    async def _add(self, outputs: list[PublishedLog]) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        partitions = sorted({log.index for log in outputs})
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._job.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[topic(name=outputs[0].name, partitions=partitions)],
        )

        def code(answer: Any) -> int:
            results = answer.results_by_topic_v3_and_below[0].results_by_partition
            return next((one.partition_error_code for one in results if one.partition_error_code), 0)

        await self._to_coordinator(request, AddPartitionsToTxnResponse, 3, code)
        request = AddOffsetsToTxnRequest(
            transactional_id=self._job.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            group_id=self._job.name,
        )
        await self._to_coordinator(request, AddOffsetsToTxnResponse, 3, lambda one: one.error_code)

    async def _produce(self, one: OpenTransaction, log: PublishedLog, value: bytes) -> None:
        sequence = self._sequences.get(log.index, 0)
        batch = encode_batch(
            [Record(0, START_MS, None, value)],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        one.write(log.place, value)
        request = frames.produce_request(self._job.name, log.name, log.index, batch, 3_000)
        version = 9 if self._version == 1 else 12
        answer = await self._to_leader(
            log,
            request,
            ProduceResponse,
            version,
            lambda reply: reply.responses[0].partition_responses[0].error_code,
        )
        self._sequences[log.index] = sequence + 1
        partition = answer.responses[0].partition_responses[0]
        is_known = partition.error_code == 0 and partition.base_offset >= 0
        one.acknowledge(value, partition.base_offset if is_known else None)

    async def _abort(self, one: OpenTransaction, *, is_clean: bool) -> None:
        """With batches in doubt a client of the old protocol takes another epoch, which the new one does anyway."""
        self._job.history.end(one, commit=False)
        self._say("aborts", one.name)
        try:
            await self._end(commit=False)
        except AbortError:
            # Nothing of it has arrived, or it is over: what is not known is cleared up by a new epoch.
            is_clean = False
        if self._version == 1 and not is_clean:
            await self._initialize(again=True)

    async def _commit(self, one: OpenTransaction) -> None:
        self._job.history.end(one, commit=True)
        self._say("commits", one.name)
        try:
            await self._end(commit=True)
        except (FencedError, AbortError) as problem:
            if not self._fenced_in_doubt:
                one.outcome = Outcome.ABORTED
            if isinstance(problem, AbortError):
                await self._initialize(again=True)
                return
            raise
        one.outcome = Outcome.COMMITTED
        self._say("has committed", one.name)
        self._job.unfinished = max(0, self._job.unfinished - 1)

    async def _end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._job.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commit,
        )
        version = 3 if self._version == 1 else 5
        answer = await self._to_coordinator(request, EndTxnResponse, version, lambda one: one.error_code)
        if self._version == 2:
            self._become((answer.producer_id, answer.producer_epoch))


class CommittedConsumer(Client):
    """Reads one partition `read_committed`, from its leader or from any broker."""

    def __init__(
        self,
        name: str,
        around: Surroundings,
        history: TransactionHistory,
        log: PublishedLog,
        topic_id: uuid.UUID,
    ) -> None:
        super().__init__(name, around)
        self.log = log
        self.position = 0
        self._topic_id = topic_id
        self._max_bytes = self.rng.choice((1, 300, 1 << 20))
        self._reader = history.reader(name, log.place)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            up = self.around.brokers_up()
            broker = self.rng.choice(up) if up and self.rng.random() < 0.3 else None
            broker = broker or self.leader(self.log.name, self.log.index)[0]
            if broker is None:
                await self.rest(0.5)
                continue
            request = frames.fetch_request(
                self._topic_id, self.log.index, self.position, committed=True, max_bytes=self._max_bytes
            )
            frame = frames.encoded(request, frames.FETCH_VERSION)
            try:
                reply = await self.ask(broker, frame, REQUEST_SEC)
            except DisconnectedError:
                await self.rest(0.2)
                continue
            answer = frames.decoded(FetchResponse, reply, frames.FETCH_VERSION)
            found = frames.fetched(answer, self.position)
            if answer.error_code or found.error_code:
                await self._hear(broker, answer.error_code or found.error_code)
                continue
            for offset, value in found.records:
                self._reader.see(offset, value)
            self.position = found.next_offset

    async def _hear(self, broker: SimulatedBroker, code: int) -> None:
        name = ErrorCode(code).name
        self.around.trace.add(self.name, f"at {self.position} hears", name, "from", broker.name)
        if code not in FETCH_RETRIABLE and code != ErrorCode.OFFSET_OUT_OF_RANGE:
            self.around.fail(f"{self.name} heard {name} from {broker.name} at {self.position}")
        await self.rest(0.3)
