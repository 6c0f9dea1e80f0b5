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
    _say(event="started")
    is_explicit, holds = options["-mode"] == "explicit", options["-hold"] == "true"
    work_sec = int(options.get("-work", "0")) / 1000
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
        received = [message for message in messages if _received(message)]
        if received and is_explicit and not holds:
            stopping.wait(work_sec)
            _say(event="telling", at=time.monotonic_ns())
            for message in received:
                consumer.acknowledge(message, _wish(message))
        if messages and holds:
            _say(event="holding")
            stopping.wait()
        elif messages and is_explicit:
            for partition, error in consumer.commit_sync().items():
                if error is not None:
                    _say(event="error", message=f"{partition}: {error}")
    consumer.close()
    _say(event="ended")


def _received(message: Message) -> bool:
    """True if it is a record."""
    if message.error() is not None:
        _say(event="error", message=str(message.error()))
        return False
    value: Any = message.value()
    _say(
        event="record",
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        value=value.decode(),
        deliveries=message.delivery_count(),
        at=time.monotonic_ns(),
    )
    return True


def _wish(message: Message) -> AcknowledgeType:
    value: Any = message.value()
    word = value.decode().split("-")[0]
    if word == "poison" or (word == "again" and message.delivery_count() == 1):
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
