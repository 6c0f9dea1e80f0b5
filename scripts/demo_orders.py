"""A small web shop for `make demo`: orders as JSON, a few of them broken, sent with a real Kafka client."""

import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

TOPIC = "orders"
PARTITIONS = 3
BROKEN_EVERY = 400
DAY_MS = 86_400_000
_COUNTRIES = ("DE", "FR", "IT", "JP", "NL", "US")
_ARTICLES = {"book": 18.5, "lamp": 42.0, "bicycle": 780.0, "tea": 6.2, "chair": 95.0}
_BROKEN = (b'{"order_id": 17, "country": "D', b"<order id='18'/>", b"\xff\xfe no text at all")


@dataclass(frozen=True, slots=True)
class Order:
    """One record as it is sent."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp_ms: int


def orders(numbers: range, now_ms: int, seed: int, *, with_coupons: bool) -> Iterator[Order]:
    """Orders of the three days before `now_ms`; one in `BROKEN_EVERY` is no JSON. The seed determines them.

    `with_coupons`: the shop's newer release, whose orders have one more field.
    """
    chance = random.Random(seed)
    for number in numbers:
        customer = f"customer-{chance.randrange(500):03}"
        fields: dict[str, Any] = {
            "order_id": number,
            "customer": customer,
            "country": chance.choice(_COUNTRIES),
            "items": [
                {"article": article, "price": _ARTICLES[article], "count": chance.randint(1, 3)}
                for article in chance.sample(sorted(_ARTICLES), chance.randint(1, 3))
            ],
        }
        fields["amount"] = round(sum(item["price"] * item["count"] for item in fields["items"]), 2)
        if with_coupons:
            fields["coupon"] = chance.choice((None, "WELCOME", "SPRING"))
        broken = number % BROKEN_EVERY == BROKEN_EVERY - 1
        yield Order(
            key=customer.encode(),
            value=chance.choice(_BROKEN) if broken else json.dumps(fields).encode(),
            headers=[("source", b"web-shop"), ("trace", f"{chance.getrandbits(64):016x}".encode())],
            timestamp_ms=now_ms - chance.randrange(3 * DAY_MS),
        )


class Shop:
    """Sends orders to a broker, and counts what was acknowledged."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._seed = seed
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20)
        self._next = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        with_admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            with_admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
        finally:
            with_admin.close()

    @property
    def sent(self) -> int:
        """The number of orders acknowledged so far, broken ones included."""
        return self._next

    @property
    def broken(self) -> int:
        """The number of them that are no JSON."""
        return self._next // BROKEN_EVERY

    def send(self, count: int, *, with_coupons: bool = False) -> None:
        """Send so many orders and wait until each is acknowledged. Raises the client's error."""
        numbers = range(self._next, self._next + count)
        now_ms = round(time.time() * 1000)
        sending = [
            self._producer.send(
                TOPIC, key=one.key, value=one.value, headers=one.headers, timestamp_ms=one.timestamp_ms
            )
            for one in orders(numbers, now_ms, self._seed + numbers.start, with_coupons=with_coupons)
        ]
        self._producer.flush()
        for one in sending:
            one.get(timeout=30)
        self._next = numbers.stop

    def open(self) -> None:
        """Keep selling, 100 orders at a time, until `close`."""
        self._thread = threading.Thread(target=self._sell, name="shop")
        self._thread.start()

    def _sell(self) -> None:
        while not self._stop.wait(0.05):
            self.send(100, with_coupons=True)

    def close(self) -> None:
        """Stop selling; returns once all orders are acknowledged."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._producer.close()
