"""The few librdkafka calls that the driver needs, by ctypes, so that no Python runs per record.

The shared library is the one inside the confluent-kafka wheel. confluent-kafka's own Python API costs
over a microsecond per record and direction, which would measure Python instead of the broker.
"""

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

import confluent_kafka

_EVENT_DR = 0x1
_EVENT_ERROR = 0x8
_PRODUCER, _CONSUMER = 0, 1
_CONF_OK = 0
_ERROR_TEXT_BYTES = 512
_FATAL_ERRORS = {-150: "fatal error", -187: "all brokers down", -193: "cannot resolve the address"}


class LibrdkafkaError(Exception):
    """librdkafka refused a call or could not deliver; the text is librdkafka's."""


class Message(Structure):
    """rd_kafka_message_t, as rdkafka.h lays it out."""

    _fields_ = [
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_void_p),
    ]


def _load() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        raise LibrdkafkaError(f"no librdkafka in {folder}: install confluent-kafka from its Linux wheel")
    library = ctypes.CDLL(str(found[0]))
    pointer_results = ("conf_new", "new", "topic_new", "queue_new", "queue_get_main", "queue_poll")
    for name in pointer_results:
        getattr(library, f"rd_kafka_{name}").restype = c_void_p
    for name in ("err2str", "version_str", "event_error_string"):
        getattr(library, f"rd_kafka_{name}").restype = c_char_p
    library.rd_kafka_event_message_count.restype = c_size_t
    library.rd_kafka_event_message_next.restype = POINTER(Message)
    library.rd_kafka_consume_callback_queue.argtypes = [c_void_p, c_int, c_void_p, c_void_p]
    library.rd_kafka_queue_poll.argtypes = [c_void_p, c_int]
    for name in ("event_type", "event_message_count", "event_message_next", "event_error", "event_destroy"):
        getattr(library, f"rd_kafka_{name}").argtypes = [c_void_p]
    library.rd_kafka_produce_batch.argtypes = [c_void_p, c_int32, c_int, c_void_p, c_int]
    return library


_LIBRARY = _load()


def version() -> str:
    """librdkafka's version, such as 2.16.0."""
    return str(_LIBRARY.rd_kafka_version_str().decode())


def _error_text(code: int) -> str:
    return str(_LIBRARY.rd_kafka_err2str(code).decode())


class _Handle:
    """One rd_kafka_t with one topic; made from a plain mapping of configuration properties."""

    def __init__(self, kind: int, topic: str, properties: Mapping[str, str]) -> None:
        text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        conf = c_void_p(_LIBRARY.rd_kafka_conf_new())
        for name, value in properties.items():
            if _LIBRARY.rd_kafka_conf_set(conf, name.encode(), value.encode(), text, len(text)) != _CONF_OK:
                raise LibrdkafkaError(text.value.decode())
        if kind == _PRODUCER:
            _LIBRARY.rd_kafka_conf_set_events(conf, _EVENT_DR | _EVENT_ERROR)
        handle = _LIBRARY.rd_kafka_new(kind, conf, text, len(text))
        if not handle:
            raise LibrdkafkaError(text.value.decode())
        self._handle = c_void_p(handle)
        self._topic = c_void_p(_LIBRARY.rd_kafka_topic_new(self._handle, topic.encode(), None))
        self._topic_name = topic.encode()

    def watermarks(self, partition: int, timeout_ms: int = 10_000) -> tuple[int, int]:
        """(log start offset, high watermark) of a partition, requested from the broker."""
        low, high = c_int64(), c_int64()
        code = _LIBRARY.rd_kafka_query_watermark_offsets(
            self._handle, self._topic_name, c_int32(partition), byref(low), byref(high), c_int(timeout_ms)
        )
        if code:
            raise LibrdkafkaError(f"watermarks of partition {partition}: {_error_text(code)}")
        return low.value, high.value

    def close(self) -> None:
        _LIBRARY.rd_kafka_topic_destroy(self._topic)
        _LIBRARY.rd_kafka_destroy(self._handle)


class BatchTemplate:
    """Records ready for `Producer.produce`, again and again; keeps their bytes alive."""

    def __init__(self, values: Sequence[bytes], keys: Sequence[bytes] = ()) -> None:
        self._values = [ctypes.create_string_buffer(value, len(value)) for value in values]
        self._keys = [ctypes.create_string_buffer(key, len(key)) for key in keys]
        self.messages = (Message * len(values))()
        for message, value in zip(self.messages, self._values, strict=True):
            message.payload = ctypes.addressof(value)
            message.len = len(value)
        for message, key in zip(self.messages, self._keys, strict=bool(keys)):
            message.key = ctypes.addressof(key)
            message.key_len = len(key)
        self.address = ctypes.addressof(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Producer(_Handle):
    """A librdkafka producer that counts delivery reports and never runs Python per record."""

    def __init__(self, topic: str, properties: Mapping[str, str]) -> None:
        super().__init__(_PRODUCER, topic, properties)
        self._events = c_void_p(_LIBRARY.rd_kafka_queue_get_main(self._handle))

    def produce(self, partition: int, batch: BatchTemplate, at_most: int | None = None) -> int:
        """Queues the whole batch, or its first `at_most` records, for one partition without copying.

        Returns how many that is; raises when the queue is full.
        """
        records = len(batch) if at_most is None else min(at_most, len(batch))
        queued = int(_LIBRARY.rd_kafka_produce_batch(self._topic, partition, 0, batch.address, records))
        if queued != records:
            refused = next(message.err for message in batch.messages if message.err)
            raise LibrdkafkaError(f"queued {queued} of {records} records: {_error_text(refused)}")
        return queued

    def poll(self, timeout_ms: int) -> int:
        """Takes one event off the queue and returns how many records it reports delivered (0: none).

        Raises LibrdkafkaError for a record that was not delivered and for errors that end the run. The
        records of one report shared one request, so the first one's error speaks for all of them.
        """
        event = _LIBRARY.rd_kafka_queue_poll(self._events, timeout_ms)
        if not event:
            return 0
        try:
            if _LIBRARY.rd_kafka_event_type(event) != _EVENT_DR:
                code = _LIBRARY.rd_kafka_event_error(event)
                if code in _FATAL_ERRORS:
                    raise LibrdkafkaError(_error_text(code))
                return 0
            delivered = int(_LIBRARY.rd_kafka_event_message_count(event))
            first = _LIBRARY.rd_kafka_event_message_next(event)
            if first and first.contents.err:
                raise LibrdkafkaError(f"{delivered} records not delivered: {_error_text(first.contents.err)}")
            return delivered
        finally:
            _LIBRARY.rd_kafka_event_destroy(event)

    def close(self) -> None:
        _LIBRARY.rd_kafka_queue_destroy(self._events)
        super().close()


class Consumer(_Handle):
    """A librdkafka consumer of given partitions from given offsets (no group), which only counts."""

    def __init__(self, topic: str, properties: Mapping[str, str]) -> None:
        super().__init__(_CONSUMER, topic, properties)
        self._queue = c_void_p(_LIBRARY.rd_kafka_queue_new(self._handle))
        self._started: list[int] = []
        # The callback for each record must be a C function, and must do nothing: librdkafka's version
        # number getter is one, and needs no compiler.
        self._ignore = ctypes.cast(_LIBRARY.rd_kafka_version, c_void_p)

    def start(self, offsets: Mapping[int, int]) -> None:
        """Starts fetching: partition -> first offset."""
        for partition, offset in offsets.items():
            code = _LIBRARY.rd_kafka_consume_start_queue(
                self._topic, c_int32(partition), c_int64(offset), self._queue
            )
            if code:
                raise LibrdkafkaError(f"cannot start partition {partition} at offset {offset}")
            self._started.append(partition)

    def poll(self, timeout_ms: int) -> int:
        """Drops all waiting records (or those within `timeout_ms`) and returns their number."""
        return max(
            0, int(_LIBRARY.rd_kafka_consume_callback_queue(self._queue, timeout_ms, self._ignore, None))
        )

    def stop(self) -> None:
        """Stops all started partitions; waiting records are dropped."""
        for partition in self._started:
            _LIBRARY.rd_kafka_consume_stop(self._topic, c_int32(partition))
        self._started.clear()
        while self.poll(0):
            pass

    def close(self) -> None:
        self.stop()
        _LIBRARY.rd_kafka_queue_destroy(self._queue)
        super().close()
