"""Short forms for `make test`, long ones for `make nightly` (KAFSCALE_TEST_NIGHTLY=1). See docs/testing.md.

A test that has no short form carries the marker `nightly`; `make test` leaves it out, pytest on a path does not.
"""

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

IS_NIGHTLY = os.environ.get("KAFSCALE_TEST_NIGHTLY", "") not in ("", "0")


def by_day(usual: T, *, by_night: T) -> T:
    """How many seeds, walks or examples a test tries: `usual` in `make test`, `by_night` in `make nightly`."""
    return by_night if IS_NIGHTLY else usual


def nightly_but(names: Iterable[str], *by_day: str) -> list[Any]:
    """Parameters of a test: those named are for `make test` too, all others for `make nightly` alone."""
    names = list(names)
    assert set(by_day) <= set(names), f"{by_day}: not all of {names}"
    return [name if name in by_day else pytest.param(name, marks=pytest.mark.nightly) for name in names]
