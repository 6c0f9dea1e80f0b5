"""`kafscale operator` on the command line, and a broker's installation that has nothing of the operator's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import clean_environment
from tests.support.waiting import PATIENCE_SEC

WITHOUT = (
    "import sys; sys.modules['kopf'] = None; "
    "from kafscale.commands.cli import main; main(sys.argv[1:], 'kafscale')"
)


def ran(*command: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in clean_environment().items()
        if name not in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST")
    }
    return subprocess.run(
        [sys.executable, *command],
        env=environment | {"HOME": str(home)} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SEC,
    )


def test_the_commands_of_a_broker_load_nothing_of_the_operator(tmp_path: Path) -> None:
    code = "import sys, kafscale.commands.cli; print(sorted({'kopf', 'aiohttp', 'yaml'} & set(sys.modules)))"
    assert ran("-c", code, home=tmp_path).stdout == "[]\n"


def test_missing_operator_extra_names_what_to_install(tmp_path: Path) -> None:
    done = ran("-c", WITHOUT, "operator", "--image", "kafscale:1", home=tmp_path)
    assert (done.returncode, "pip install 'kafscale[operator]'" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing option '--image'"),
        (["--image", "kafscale:1", "--metrics-addr", "here"], "'here' is no HOST:PORT"),
        (["--image", "kafscale:1", "--log-level", "loud"], "'loud' is not one of"),
    ],
)
def test_an_option_that_is_not_legal_is_named(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = ran("-m", "kafscale", "operator", *arguments, home=tmp_path)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_without_an_api_it_says_what_to_set(tmp_path: Path) -> None:
    done = ran("-m", "kafscale", "operator", home=tmp_path, KAFSCALE_OPERATOR_IMAGE="kafscale:1")
    assert done.returncode == 1
    assert "KUBECONFIG is not set" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []
