"""Numbers as people read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.pages import units


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (units.count(None), units.NOT_KNOWN),
        (units.count(12345), "12,345"),
        (units.count(12_345_678), "12.3 M"),
        (units.count(math.inf), "no limit"),
        (units.things(1, "partition"), "1 partition"),
        (units.things(2000, "partition"), "2,000 partitions"),
        (units.size(0), "0 B"),
        (units.size(1023), "1,023 B"),
        (units.size(1536), "1.5 KiB"),
        (units.size(2**40 * 300), "300 TiB"),
        (units.size_rate(2048), "2.0 KiB/s"),
        (units.rate(0), "0/s"),
        (units.rate(0.001), "<0.01/s"),
        (units.rate(4.161), "4.16/s"),
        (units.record_rate(1234), "1,234 records/s"),
        (units.duration(0), "0 s"),
        (units.duration(0.00026), "0.26 ms"),
        (units.duration(0.34), "340 ms"),
        (units.duration(12.34), "12.3 s"),
        (units.duration(60), "1 min 0 s"),
        (units.duration(11_040), "3 h 4 min"),
        (units.duration(math.inf), "longer"),
        (units.dollars(0), "$0.00"),
        (units.dollars(1234.5), "$1,234.50"),
        (units.dollars(0.00012345), "$0.00012"),
        (units.dollars(1e-9), "<$0.000001"),
        (units.share(1, 3), "33 %"),
        (units.share(1, 0), units.NOT_KNOWN),
    ],
)
def test_numbers_are_shown_as(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.floats(0, 1e30))
def test_every_amount_has_a_short_form(value: float) -> None:
    forms = (units.count, units.size, units.size_rate, units.rate, units.duration, units.dollars)
    assert all(len(form(value)) < 60 for form in forms)
