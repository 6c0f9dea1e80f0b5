"""docs/test-your-consumer.md: its code runs, and it names what there is."""

import re

import pytest

from kafscale.testing import KafkaBroker, KafkaCluster, SharedKafka
from scripts.project import ROOT
from tests.testing.pytest_run import run_pytest

pytest_plugins = ("pytester",)

PAGE = (ROOT / "docs" / "test-your-consumer.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_every_block_of_code_passes(pytester: pytest.Pytester) -> None:
    assert len(BLOCKS) >= 7
    for number, block in enumerate(BLOCKS):
        # In a folder each: one of them overrides a fixture.
        (pytester.mkdir(f"block{number}") / f"test_block{number}.py").write_text(block)
    run_pytest(pytester).assert_outcomes(passed=sum(block.count("def test_") for block in BLOCKS))


def test_calls_in_the_tables_exist() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z_.]+)\(", row)}
    assert {"produce", "fail", "clock.advance", "store.outage"} <= named
    with KafkaBroker() as broker:
        for name in named:
            found: object = broker
            for part in name.split("."):
                found = getattr(found, part)
            assert callable(found), name
    for kind in (KafkaCluster, SharedKafka):
        assert callable(kind.produce)
        assert callable(kind.wait_until_consumed)
