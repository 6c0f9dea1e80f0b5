"""The README's tour runs as it is written, with another port."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from scripts.project import ROOT
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.java import JVM_OPTIONS
from tests.support.process import clean_environment

README = (ROOT / "README.md").read_text()
ADDRESS = "127.0.0.1:9092"
TIMEOUT_S = 120
# What waits for more until Ctrl-C: in the test until all records have come.
ENDS_BY_ITSELF = {
    "-G team -X auto.offset.reset=earliest numbers": "-G team -c 1000 -X auto.offset.reset=earliest numbers"
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    """A broker as `make run` starts it, but for its ports and its folder."""
    with running_broker(tmp_path_factory.mktemp("tour")) as made:
        yield made


def test_kcat_and_kafkas_tools(broker: KafscaleBroker, kcat: None, java_processes: None) -> None:
    told = _shell(_commands("**kcat**", "**Python**"), broker)
    listed = [line for line in told.splitlines() if line.isdecimal()]
    numbers = [str(number) for number in range(1, 1001)]
    assert listed == [*numbers, *numbers, *numbers[:10]]
    assert 'topic "numbers" with 1 partitions' in told
    assert "words:0:" in told
    assert re.search(r"^team +numbers +0 +1000 +1000 +0 ", told, flags=re.MULTILINE)


def test_python(broker: KafscaleBroker) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, broker.bootstrap)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stdout == "1000 records\n"


def _commands(begin: str, end: str) -> str:
    """The indented lines between two words of the README."""
    _, found, rest = README.partition(begin)
    text, found_end, _ = rest.partition(end)
    assert found and found_end
    return "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))


def _shell(commands: str, broker: KafscaleBroker) -> str:
    """The commands' output; each must succeed. `make tools` has been run before."""
    assert ADDRESS in commands and "make tools\n" in commands
    commands = commands.replace("make tools\n", "").replace(ADDRESS, broker.bootstrap)
    for endless, ending in ENDS_BY_ITSELF.items():
        assert endless in commands
        commands = commands.replace(endless, ending)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=ROOT,
        env=clean_environment() | {"JAVA_TOOL_OPTIONS": " ".join(JVM_OPTIONS)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
