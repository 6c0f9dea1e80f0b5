"""Fill the topic `orders` with a thousand orders of the last hour, for the other examples.

python examples/produce_orders.py [BOOTSTRAP]
"""

import json
import sys
import time

from kafka import KafkaProducer

ORDERS = 1000
COUNTRIES = ("DE", "FR", "PL", "SE")


def main() -> None:
    bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
    first_ms = int(time.time() * 1000) - 3_600_000
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    sent = []
    for number in range(ORDERS):
        order = {
            "order": number,
            "country": COUNTRIES[number * 7 % 10 % 4],
            "amount_eur": round(10 + number * 37 % 190 * 0.95, 2),
        }
        sent.append(
            producer.send(
                "orders",
                key=f"customer-{number * number % 47}".encode(),
                value=json.dumps(order).encode(),
                timestamp_ms=first_ms + number * 3_600,
            )
        )
    producer.flush()
    for future in sent:
        future.get()  # Raises if the order is not stored.
    producer.close()
    print(f"{ORDERS} orders are in the topic 'orders'")


if __name__ == "__main__":
    main()
