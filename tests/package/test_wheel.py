"""The wheel and the sdist: their bytes, their metadata, and the wheel alone in an empty environment."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest

from scripts import build_dist
from tests.package.declared import EXTRAS, PROJECT, base
from tests.package.pythons import VERSIONS, find_python
from tests.support.broker import KafscaleBroker
from tests.support.nightly import nightly_but
from tests.support.process import clean_environment
from tests.support.waiting import PATIENCE_SEC

EPOCH = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Built:
    """The files that `make dist` makes."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    try:
        return Built(*build_dist.build(tmp_path_factory.mktemp("dist"), EPOCH))
    except build_dist.BuildError as problem:
        skip_if_nothing_can_be_fetched(str(problem))
        raise


def skip_if_nothing_can_be_fetched(problem: str) -> None:
    """Skip the test if uv has said that it has no way to the packages."""
    if re.search("Failed to fetch|the network was disabled", problem):
        pytest.skip(f"packages cannot be fetched: {problem.strip().splitlines()[-1]}")


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """The output of a command, which must succeed, in a folder without the project."""
    done = subprocess.run(
        [str(word) for word in command],
        env=clean_environment() | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SEC,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- what is in them


def test_wheel_has_the_sources_and_no_tests(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    packages = ("kafscale", "pyspark_kafscale", "spark_jobs")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *packages],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert names == {name for name in listed.stdout.splitlines() if (PROJECT / name).is_file()}
    assert {"kafscale/py.typed", "spark_jobs/pom.xml", "spark_jobs/log4j2.properties"} <= names


def test_sdist_has_the_wheels_sources_and_the_papers(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        members = sdist.getmembers()
    top = f"kafscale-{version('kafscale')}"
    names = {member.name.removeprefix(f"{top}/") for member in members if member.isfile()}
    with zipfile.ZipFile(built.wheel) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} <= names
    assert {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "scripts/", "docs/"))]
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(EPOCH, 0, 0, "")}
    assert {member.mode for member in members} == {0o644, 0o755}


def test_metadata_is_complete(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(wheel.read(name).decode())
        assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())
    assert metadata["Name"] == "kafscale"
    assert metadata["Version"] == version("kafscale")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) >= set(EXTRAS)
    supported = {f"Programming Language :: Python :: {one}" for one in VERSIONS}
    assert supported <= set(metadata.get_all("Classifier", []))
    assert metadata.get_payload() == (PROJECT / "README.md").read_text()


def test_twine_finds_nothing(built: Built) -> None:
    twine = (sys.executable, "-m", "twine", "--no-color", "check", "--strict")
    assert run(*twine, built.wheel, built.sdist, folder=built.wheel.parent).count("PASSED") == 2


@pytest.mark.nightly
def test_another_build_has_the_same_bytes(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder, at another time, in another time zone, by another user's umask."""
    copy = tmp_path / "copy"
    for name in (".gitignore", *build_dist.SOURCES):
        source = PROJECT / name
        copied = shutil.copytree if source.is_dir() else shutil.copyfile
        copy.mkdir(exist_ok=True)
        copied(source, copy / name)
    run("git", "init", "--quiet", folder=copy)
    monkeypatch.setattr(build_dist, "PROJECT", copy)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = os.umask(0o077)
    try:
        sdist, wheel = build_dist.build(tmp_path / "made", EPOCH)
    finally:
        os.umask(before)
    assert sdist.read_bytes() == built.sdist.read_bytes()
    assert wheel.read_bytes() == built.wheel.read_bytes()


# --- the wheel alone


def uv(*words: str | Path, folder: Path) -> str:
    # Its cache and its ways to packages are the machine's.
    environment = {name: os.environ[name] for name in os.environ if name.startswith(("UV_", "PIP_", "SSL_"))}
    return run(Path(sys.executable).with_name("uv"), *words, folder=folder, **environment)


@pytest.fixture
def installed(built: Built, python: str, tmp_path: Path) -> Path:
    """The Python of an environment that has the wheel, what it needs, and nothing else."""
    found = find_python(python)
    if found is None:
        pytest.skip(f"there is no Python {python} on this machine")
    environment = tmp_path / "environment"
    uv("venv", "--quiet", "--python", found, environment, folder=tmp_path)
    interpreter = environment / "bin" / "python"
    try:
        uv("pip", "install", "--quiet", "--python", interpreter, built.wheel, folder=tmp_path)
    except AssertionError as problem:
        skip_if_nothing_can_be_fetched(str(problem))
        raise
    names = uv("pip", "freeze", "--python", interpreter, folder=tmp_path)
    assert set(re.findall(r"^[\w-]+", names, re.MULTILINE)) == base() | {"kafscale"}
    return interpreter


class InstalledBroker(KafscaleBroker):
    """`kafscale serve` of another environment."""

    def __init__(self, folder: Path, interpreter: Path) -> None:
        super().__init__(folder)
        self.interpreter = interpreter

    def launch_only(self) -> None:
        self.launch([str(self.interpreter.with_name("kafscale")), "serve"], self.environment())


@pytest.fixture
def broker(installed: Path, tmp_path: Path) -> Iterator[InstalledBroker]:
    started = InstalledBroker(tmp_path / "broker", installed)
    try:
        started.start()
        yield started
    finally:
        started.close()


def tour() -> str:
    """README's program."""
    (program,) = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    assert isinstance(program, str)
    return program


@pytest.mark.parametrize("python", nightly_but(VERSIONS))
def test_tour_with_the_wheel_alone(
    broker: InstalledBroker, installed: Path, tmp_path: Path, python: str
) -> None:
    command = installed.with_name("kafscale")
    assert run(command, "--version", folder=tmp_path) == f"kafscale {version('kafscale')}\n"
    assert "Start a broker" in run(command, "--help", folder=tmp_path)
    program = tour().replace("127.0.0.1:9092", broker.bootstrap)
    assert run(installed, "-c", program, folder=tmp_path) == "1000 records\n"
    broker.stop()
    assert "WARNING" not in broker.log_path.read_text()
