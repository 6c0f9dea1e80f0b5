"""The scripts in examples/ do what their page says, one after the other as a newcomer runs them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.project import ROOT
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.process import clean_environment
from tests.support.waiting import PATIENCE_SEC
from tests.testing.pytest_run import run_pytest

pytest_plugins = ("pytester",)

EXAMPLES = ROOT / "examples"
FROM_CUSTOMER_7 = [number for number in range(1000) if number * number % 47 == 7]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    """A broker that has the orders."""
    with running_broker(tmp_path_factory.mktemp("examples")) as running:
        shown = run(sys.executable, EXAMPLES / "produce_orders.py", running.bootstrap, folder=running.folder)
        assert shown == "1000 orders are in the topic 'orders'\n"
        yield running


def run(*command: str | Path, folder: Path) -> str:
    """The output of a command that must succeed and write nothing to standard error, run in `folder`."""
    own = {"PYTHONPATH": str(ROOT), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    # kafka-python reads its schemas in a way that Python 3.11 warns of.
    quiet = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}
    done = subprocess.run(
        [str(word) for word in command],
        env=clean_environment() | own | quiet,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SEC,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
def test_read_as_arrow_sums_what_was_produced(broker: KafscaleBroker) -> None:
    shown = run(sys.executable, EXAMPLES / "read_as_arrow.py", broker.data_folder, folder=broker.folder)
    heading, *countries = shown.splitlines()
    assert heading == "1000 orders of the last two hours"
    assert [line.split()[0] for line in countries] == ["FR", "DE", "SE", "PL"]
    amounts = [float(line.split()[1].replace(",", "")) for line in countries]
    assert amounts == sorted(amounts, reverse=True)
    assert sum(amounts) == pytest.approx(
        sum(round(10 + number * 37 % 190 * 0.95, 2) for number in range(1000))
    )


@pytest.mark.nightly
def test_cat_prints_and_filters(broker: KafscaleBroker) -> None:
    shown = run("sh", EXAMPLES / "cat.sh", broker.data_folder, folder=broker.folder)
    assert len(re.findall(r"^\{\"topic\": \"orders\", \"partition\": 0, ", shown, re.MULTILINE)) == 2
    orders = re.findall(r'^\{"order": (\d+),', shown, re.MULTILINE)
    assert [int(number) for number in orders] == FROM_CUSTOMER_7[-3:]
    assert len(re.findall(r"^ +\d+ customer-\d+$", shown, re.MULTILINE)) == 3


def test_consumer_example_passes(pytester: pytest.Pytester) -> None:
    shutil.copy(EXAMPLES / "test_consumer.py", pytester.path)
    run_pytest(pytester).assert_outcomes(passed=3)


def test_page_names_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file() and path.name != "README.md"}
    assert {name for name in files if f"]({name})" not in page} == set()
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {name for name in folders if f"]({name}" not in page} == set()
    named = set(re.findall(r"examples/[\w./-]+", page))
    assert {name for name in named if not (ROOT / name).exists()} == set()
