"""What `make demo` sends, and that the commands it runs take the options that it gives them."""

import json
from pathlib import Path

from scripts.demo import TABLE, Demo
from scripts.demo_orders import BROKEN_EVERY, DAY_MS, orders
from spark_jobs import export, reconcile

NOW_MS = 1_700_000_000_000


def test_orders_are_the_same_for_a_seed_and_a_few_are_broken() -> None:
    numbers = range(10, 10 + 2 * BROKEN_EVERY)
    sent = list(orders(numbers, NOW_MS, 3, with_coupons=False))
    assert sent == list(orders(numbers, NOW_MS, 3, with_coupons=False))
    assert sent != list(orders(numbers, NOW_MS, 4, with_coupons=False))
    fields = []
    for one in sent:
        assert NOW_MS - 3 * DAY_MS < one.timestamp_ms <= NOW_MS
        try:
            fields.append((one.key, json.loads(one.value)))
        except ValueError:
            continue
    assert len(fields) == len(sent) - 2
    assert all(key == order["customer"].encode() for key, order in fields)
    assert [order["order_id"] for _, order in fields] == [
        number for number in numbers if number % BROKEN_EVERY != BROKEN_EVERY - 1
    ]


def test_the_newer_release_of_the_shop_has_a_field_more() -> None:
    (before,) = orders(range(1), NOW_MS, 1, with_coupons=False)
    (after,) = orders(range(1), NOW_MS, 1, with_coupons=True)
    assert json.loads(after.value).keys() - json.loads(before.value).keys() == {"coupon"}


def test_the_commands_take_its_options(tmp_path: Path) -> None:
    arguments = Demo(tmp_path).common_arguments()
    for command in (export.main, reconcile.main):
        parameters = command.make_context("any", list(arguments)).params
        assert parameters["table"] == TABLE
        assert parameters["value_format"] == "json"
