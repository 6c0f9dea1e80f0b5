"""Load drivers: each runs in a process of its own, so that its processor time is not the broker's."""

import subprocess
import sys
from typing import TypeVar

from bench.brokers import ROOT
from bench.specs import Result, Spec, result_from_json, to_json

_TIMEOUT_SECONDS = 600.0

Wanted = TypeVar("Wanted", bound=Result)


class DriverError(Exception):
    """A driver process failed; the text is its last output."""


def drive(spec: Spec, wanted: type[Wanted]) -> Wanted:
    """Run the driver for the spec; its result is of the type `wanted`. Raises `DriverError`."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.driver"],
            input=to_json(spec),
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise DriverError(f"{type(spec).__name__}: not done after {_TIMEOUT_SECONDS:.0f} s") from None
    if done.returncode:
        raise DriverError(f"{type(spec).__name__}: {done.stderr[-2000:]}")
    result = result_from_json(done.stdout.splitlines()[-1])
    assert isinstance(result, wanted), f"{type(spec).__name__} gave {type(result).__name__}"
    return result
