"""The stages of a produce request that `python -m bench.stages` times."""

import pytest

from bench.payloads import record_pool
from bench.stages import stages


@pytest.mark.parametrize(("payload", "shrinks"), [("log", True), ("random", False)])
def test_every_stage_does_its_work(payload: str, shrinks: bool) -> None:
    path = stages(record_pool(payload, 1024)[:16])
    done = {name: work() for name, work in path.items()}
    assert bool(done["snappy"]) is shrinks
    assert done["CRC of the segment's body"]
    assert isinstance(done["reply"], bytes)
