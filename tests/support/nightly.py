"""Short forms for `make test`, long ones for `make nightly` (KAFSCALE_TEST_NIGHTLY=1). See docs/testing.md."""

import os
from typing import TypeVar

T = TypeVar("T")

IS_NIGHTLY = os.environ.get("KAFSCALE_TEST_NIGHTLY", "") not in ("", "0")


def by_day(usual: T, *, by_night: T) -> T:
    """How many seeds, walks or examples a test tries: `usual` in `make test`, `by_night` in `make nightly`."""
    return by_night if IS_NIGHTLY else usual
