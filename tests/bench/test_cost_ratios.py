"""The check of the broker's CPU against the ceiling's: what it lets pass, what it does not, and the check itself."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bench import cost_check
from bench.cost_check import RECORDED_PATH, check, main, recorded
from bench.cost_ratios import (
    ENOUGH_ROUNDS,
    FETCH,
    FEWEST_ROUNDS,
    FIGURES,
    FRAMES,
    MOST_ROUNDS,
    TINY,
    Costs,
    Figure,
    Verdict,
    decode_recorded,
    encode_recorded,
    report,
    verdict,
)

_HELD = {TINY.name: 50.0, FRAMES.name: 12.0, FETCH.name: 1.25}
_CEILING = {TINY: 0.7e-6, FRAMES: 0.065, FETCH: 0.15}

_disturbed = st.floats(1.0, 4.0)
"""How many times its cost a sample may come to on a machine that does other things."""


def _measured(rounds: int, slower: dict[Figure, float] | None = None) -> dict[Figure, Costs]:
    """An undisturbed machine: each figure at its recorded ratio, or so many times that."""
    factors = slower or {}
    return {
        figure: Costs(
            ours=[_CEILING[figure] * _HELD[figure.name] * factors.get(figure, 1.0)] * rounds,
            ceiling=[_CEILING[figure]] * rounds,
        )
        for figure in FIGURES
    }


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_slow_down_fails_only_beyond_the_margin(figure: Figure) -> None:
    slow = {figure: figure.margin * 1.05}
    assert verdict(_measured(FEWEST_ROUNDS), _HELD) is Verdict.AS_RECORDED
    assert verdict(_measured(FEWEST_ROUNDS, {figure: figure.margin * 0.95}), _HELD) is Verdict.AS_RECORDED
    for rounds in range(ENOUGH_ROUNDS):
        assert verdict(_measured(rounds, slow), _HELD) is Verdict.NOT_CLEAR
    assert verdict(_measured(ENOUGH_ROUNDS, slow), _HELD) is Verdict.WORSE


@given(st.lists(st.tuples(_disturbed, _disturbed), min_size=FEWEST_ROUNDS - 1, max_size=MOST_ROUNDS - 1))
def test_disturbed_samples_pass_with_one_calm_sample(
    noise: list[tuple[float, float]],
) -> None:
    measured = _measured(1)
    for costs in measured.values():
        costs.ours += [costs.ours[0] * ours for ours, _ in noise]
        costs.ceiling += [costs.ceiling[0] * ceiling for _, ceiling in noise]
    assert verdict(measured, _HELD) is Verdict.AS_RECORDED


def test_disagreeing_samples_are_repeated_up_to_a_limit() -> None:
    measured = _measured(ENOUGH_ROUNDS)
    measured[TINY].ours = [one * 2 * 1.2**number for number, one in enumerate(measured[TINY].ours)]
    assert verdict(measured, _HELD) is Verdict.NOT_CLEAR
    measured = _measured(MOST_ROUNDS)
    measured[TINY].ours = [one * 2 * 1.2**number for number, one in enumerate(measured[TINY].ours)]
    assert verdict(measured, _HELD) is Verdict.WORSE


def test_before_the_first_round_nothing_is_clear() -> None:
    assert verdict(_measured(0), _HELD) is Verdict.NOT_CLEAR


def test_a_report_has_ratio_limit_and_every_sample() -> None:
    text = report(_measured(3, {FETCH: 2.0}), _HELD)
    assert "tiny produce requests: 50.00 times the ceiling (recorded 50.00, too much 80.00)" in text
    assert "CPU us/request 35 35 35 / 0.7 0.7 0.7" in text
    assert "fetch in 1 MiB frames: 2.50 times the ceiling (recorded 1.25, too much 1.88)" in text
    assert "CPU us/GB 375,000 375,000 375,000 / 150,000 150,000 150,000" in text


def test_ratios_are_read_as_they_were_written() -> None:
    assert decode_recorded(encode_recorded(_measured(3))) == _HELD


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        ({TINY.name: 1.0}, "legal: of"),
        ({**_HELD, "more": 1.0}, "legal: of"),
        ([], "legal: of"),
        ({**_HELD, TINY.name: 0}, "legal: a number above 0"),
        ({**_HELD, TINY.name: "1"}, "legal: a number above 0"),
    ],
)
def test_a_file_of_anything_else_is_refused(held: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_recorded(json.dumps(held))


def test_the_file_is_as_the_command_writes_it() -> None:
    held = recorded()
    assert RECORDED_PATH.read_text() == json.dumps(held, indent=2) + "\n"


def test_cost_command_fails_on_regression_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ratios.json"
    monkeypatch.setattr(cost_check, "RECORDED_PATH", path)
    monkeypatch.setattr(cost_check, "record", lambda work_dir: (encode_recorded(_measured(3)), "seen"))
    runner = CliRunner()
    assert runner.invoke(main, ["--record"], catch_exceptions=False).exit_code == 0
    assert decode_recorded(path.read_text()) == _HELD
    for found, status in ((Verdict.AS_RECORDED, 0), (Verdict.WORSE, 1)):
        monkeypatch.setattr(cost_check, "check", lambda work_dir, held, found=found: (found, "seen"))
        told = runner.invoke(main, [], catch_exceptions=False)
        assert (told.exit_code, told.output) == (status, f"seen\n{found.value}\n")


@pytest.mark.nightly
def test_cpu_cost_is_not_clearly_worse_than_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, seen = check(tmp_path, recorded())
    with capsys.disabled():
        print(f"\n{seen}")
    assert found is Verdict.AS_RECORDED, (
        f"{seen}\nWhere that is meant: python -m bench.cost_check --record, and say why."
    )
