"""Events of `make demo`, that the commands take the options that it gives them, and that one Spark runs all."""

import json
import os
import types
from pathlib import Path

import click
import pytest

from scripts import demo
from scripts.demo import TABLE, Demo, DemoError, run_job
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


def job(main: click.Command) -> types.ModuleType:
    made = types.ModuleType("spark_jobs.made_up")
    made.main = main  # type: ignore[attr-defined]
    return made


def test_a_job_runs_in_this_process_and_its_status_counts() -> None:
    seen: list[tuple[int, str]] = []

    @click.command()
    @click.option("--status", type=int)
    @click.argument("word")
    def command(status: int, word: str) -> None:
        seen.append((os.getpid(), word))
        raise SystemExit(status)

    run_job(job(command), "--status", "0", "hello")
    assert seen == [(os.getpid(), "hello")]
    with pytest.raises(DemoError, match=r"spark_jobs\.made_up ended with exit code 3"):
        run_job(job(command), "--status", "3", "hello")
    with pytest.raises(DemoError, match="No such option"):
        run_job(job(command), "--no-such-option")


def test_every_job_of_the_story_runs_in_the_one_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[str] = []
    monkeypatch.setattr(demo, "run_job", lambda module, *_: run.append(module.__name__))
    story = Demo(tmp_path)
    story.export()
    story.export()
    story.reconcile()
    assert run == ["spark_jobs.export", "spark_jobs.export", "spark_jobs.reconcile"]


def test_settings_of_other_brokers_do_not_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_S3_BUCKET", "somebody-elses")
    seen: list[list[str]] = []
    monkeypatch.setattr(
        demo,
        "run_story",
        lambda _: seen.append([name for name in os.environ if name.startswith("KAFSCALE_")]),
    )
    assert demo.main([]) == 0
    assert seen == [[]]
