"""`make tools` and what each target of the Makefile fetches: no more than it needs."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat import tools
from tests.support.installing import CannotInstallError
from tests.support.waiting import PATIENCE_SEC

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The parts that were installed; helm cannot be had."""
    done: list[str] = []

    def fail() -> str:
        raise CannotInstallError("no Go")

    def installer(part: str) -> Callable[[], str]:
        def install() -> str:
            done.append(part)
            return "fetched"

        return fail if part == "helm" else install

    monkeypatch.setattr(tools, "PARTS", {part: (part, installer(part)) for part in tools.PARTS})
    monkeypatch.setattr(tools, "TOOLS", tmp_path / "tools")
    return done


def test_named_parts_alone_are_installed_and_each_once(installed: list[str]) -> None:
    assert tools.main(["kafka", "etcd", "kafka"]) == 0
    assert sorted(installed) == ["etcd", "kafka"]


def test_without_a_name_all_parts_are_installed(installed: list[str]) -> None:
    assert tools.main([]) == 0
    assert sorted(installed) == sorted(part for part in tools.PARTS if part != "helm")


def test_every_part_is_in_exactly_one_queue() -> None:
    assert sorted(part for queue in tools.QUEUES for part in queue) == sorted(tools.PARTS)


def test_a_part_that_cannot_be_had_fails_where_required(
    installed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tools.main(["helm"]) == 0
    assert tools.main(["--required", "helm", "kcat"]) == 1
    assert installed == ["kcat"]
    assert "helm: not installed: no Go" in capsys.readouterr().out


def test_an_unknown_part_is_named(installed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tools.main(["kafka", "hadoop"])
    assert ended.value.code == 2
    assert "unknown part 'hadoop'" in capsys.readouterr().err
    assert installed == []


def recipe(target: str, folder: Path) -> str:
    """The commands that make would run for the target in a fresh checkout."""
    (folder / "Makefile").write_text((REPOSITORY / "Makefile").read_text())
    for needed in ("pyproject.toml", "spark_jobs/pom.xml"):
        (folder / needed).parent.mkdir(exist_ok=True)
        (folder / needed).touch()
    told = subprocess.run(
        ["make", "--dry-run", target],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SEC,
    )
    return told.stdout


def test_make_tools_sets_up_no_more_than_a_broker_needs(tmp_path: Path) -> None:
    told = recipe("tools", tmp_path)
    assert re.search(r"tests\.compat\.tools --required kafka$", told, re.M)
    assert "pip install" in told
    assert not re.search(r"spark|helm|\[.*test.*\]", told)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("test", ""),
        ("test-paused", ""),
        ("test-tools", ""),
        ("test-k8s", " etcd versitygw"),
        ("chaos", " kafka etcd versitygw"),
        ("group-chaos", " kafka kafka-share etcd versitygw"),
        ("bench", " kafka etcd versitygw"),
        ("bench-lake", " kafka"),
    ],
)
def test_each_target_names_the_parts_that_it_needs(tmp_path: Path, target: str, parts: str) -> None:
    found = re.findall(r"tests\.compat\.tools(.*)", recipe(target, tmp_path))
    assert found == [parts]
    assert set(parts.split()) <= set(tools.PARTS)


def test_nightly_runs_every_long_form(tmp_path: Path) -> None:
    told = recipe("nightly", tmp_path)
    assert "KAFSCALE_TEST_NIGHTLY=1" in told
    for part in ("test_crash", "test_cluster_chaos", "test_group_chaos", "test_large_segment", "tests.fuzz"):
        assert part in told
