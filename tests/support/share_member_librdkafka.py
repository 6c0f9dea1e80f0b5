"""A member of a share group with confluent-kafka (librdkafka) until SIGTERM: then it leaves the group.

    python -m tests.support.share_member_librdkafka -bootstrap=127.0.0.1:9092 -group=g -topics=t -mode=explicit ...

The value of a record begins with what is to become of it, as in tests/compat/java/ShareMember.java.
"""

import json
import signal
import sys
import threading
import time
from typing import Any

from confluent_kafka import AcknowledgeType, Message, ShareConsumer

POLL_SECONDS = 0.1


def main() -> None:
    """Be a member until SIGTERM."""
    options = dict(argument.split("=", 1) for argument in sys.argv[1:])
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    is_explicit, holds = options["-mode"] == "explicit", options["-hold"] == "true"
    consumer = ShareConsumer(
        {
            "bootstrap.servers": options["-bootstrap"],
            "group.id": options["-group"],
            "share.acknowledgement.mode": options["-mode"],
            "max.poll.records": int(options["-count"]),
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 4,
        }
    )
    consumer.set_acknowledgement_commit_callback(_acknowledged)
    consumer.subscribe(options["-topics"].split(","))
    while not stopping.is_set():
        messages = list(consumer.poll(POLL_SECONDS))
        for message in messages:
            _handle(consumer, message, is_explicit and not holds)
        if messages and holds:
            _say(event="holding")
            stopping.wait()
        elif messages and is_explicit:
            for partition, error in consumer.commit_sync().items():
                if error is not None:
                    _say(event="error", message=f"{partition}: {error}")
    consumer.close()
    _say(event="ended")


def _handle(consumer: ShareConsumer, message: Message, is_explicit: bool) -> None:
    if message.error() is not None:
        _say(event="error", message=str(message.error()))
        return
    value: Any = message.value()
    deliveries: Any = message.delivery_count()
    _say(
        event="record",
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        value=value.decode(),
        deliveries=deliveries,
        at=time.monotonic_ns(),
    )
    if is_explicit:
        consumer.acknowledge(message, _wish(value.decode(), deliveries))


def _wish(value: str, deliveries: int) -> AcknowledgeType:
    word = value.split("-")[0]
    if word == "poison" or (word == "again" and deliveries == 1):
        return AcknowledgeType.RELEASE
    return AcknowledgeType.REJECT if word == "bad" else AcknowledgeType.ACCEPT


def _acknowledged(offsets: dict[Any, set[int]], error: Exception | None) -> None:
    for partition, told in offsets.items():
        _say(
            event="acknowledged",
            partition=partition.partition,
            offsets=sorted(told),
            error="" if error is None else str(error),
            at=time.monotonic_ns(),
        )


def _say(**row: object) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
