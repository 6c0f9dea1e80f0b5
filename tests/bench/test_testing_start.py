"""The measurement of brokers in tests."""

import json

from click.testing import CliRunner

from bench.testing_start import main


def test_a_round_measures_every_broker() -> None:
    shown = CliRunner().invoke(main, ["--json", "--brokers", "4"], catch_exceptions=False)
    found = json.loads(shown.output)
    assert len(found["starts"]) == len(found["stops"]) == 4
    assert all(cost["cpu_ms"] > 0 for cost in (found["first"], *found["starts"]))
