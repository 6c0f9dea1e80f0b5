"""Both Dockerfiles, without building: what a linter says of them, and what they may see of the project."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import lock_images
from tests.support.dockerfile import context_files, expand, parse
from tests.support.waiting import PATIENCE_SEC

PROJECT = Path(__file__).resolve().parents[2]
DOCKERFILES = [Path("Dockerfile"), Path("deploy/spark/Dockerfile")]
HADOLINT = Path(sys.executable).with_name("hadolint")

each = pytest.mark.parametrize("path", DOCKERFILES, ids=str)


@each
def test_hadolint_has_nothing_to_say(path: Path) -> None:
    command = [str(HADOLINT), "--failure-threshold", "style", "--trusted-registry", "docker.io", str(path)]
    told = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, timeout=PATIENCE_SEC, check=False
    )
    assert (told.returncode, told.stdout) == (0, ""), told.stdout + told.stderr


@each
def test_it_runs_as_a_user_without_rights(path: Path) -> None:
    last = parse((PROJECT / path).read_text())[-1]
    assert last.last("USER").text.split(":")[0] == "10001"
    assert [
        one for one in last.instructions[last.instructions.index(last.last("USER")) :] if one.name == "RUN"
    ] == []


@each
def test_both_are_made_in_stages_from_the_same_base(path: Path) -> None:
    stages = parse((PROJECT / path).read_text())
    assert [stage.name for stage in stages] == ["build", None]
    (base,) = {stage.base for other in DOCKERFILES for stage in parse((PROJECT / other).read_text())}
    assert stages[0].base == base


@each
def test_base_is_pinned_by_digest(path: Path) -> None:
    base = parse((PROJECT / path).read_text())[0].base
    assert re.fullmatch(r"docker\.io/library/python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", base)


@each
def test_packages_are_installed_by_hash(path: Path) -> None:
    installs = [
        command
        for stage in parse((PROJECT / path).read_text())
        for step in stage.all("RUN")
        for command in step.text.split("&&")
        if " pip " in command
    ]
    assert len(installs) == 2
    for command in installs:
        assert "--require-hashes --requirement requirements.txt" in command or "--no-deps ." in command


@pytest.mark.parametrize("lock", lock_images.LOCKS, ids=lambda lock: lock.extra)
def test_lock_fits_pyproject(lock: lock_images.Lock) -> None:
    assert list(lock.problems()) == []


def test_lock_without_a_hash_or_a_version_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_images, "PROJECT", tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\ndependencies = ["a>=2", "b"]\n'
        'optional-dependencies = {operator = ["P[store]", "c<1"], store = ["d"]}\n'
    )
    lock = lock_images.Lock(tmp_path / "requirements.txt", "operator")
    lock.path.write_text(lock_images.HEADER + "A==1.0 \\\n    --hash=sha256:0\nc==0.5\n")
    assert list(lock.problems()) == [
        "requirements.txt: a>=2 has 1.0",
        "requirements.txt: b has nothing",
        "requirements.txt: d has nothing",
        "requirements.txt: no hash: 'c==0.5\\n'",
    ]


@each
def test_what_it_copies_is_in_the_context(path: Path) -> None:
    files = context_files(PROJECT)
    for stage in parse((PROJECT / path).read_text()):
        for step in stage.all("COPY"):
            for source in step.words()[:-1] if "from" not in step.flags else []:
                wanted = Path(source)
                assert any(file == wanted or wanted in file.parents for file in files), f"line {step.line}"


def test_build_context_has_only_the_images_sources(tmp_path: Path) -> None:
    kept = [
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "kafscale/broker/app.py",
        "kafscale/metadata/etcd/store.py",
        "spark_jobs/pom.xml",
        "deploy/requirements.txt",
        "deploy/spark/requirements.txt",
    ]
    left_out = [
        ".git/config",
        ".venv/bin/python",
        ".tools/etcd",
        "kafscale/__pycache__/app.cpython-311.pyc",
        "kafscale/metadata/__pycache__/model.cpython-311.pyc",
        "kafscale-data/secret",
        "tests/commands/test_cli.py",
        "deploy/spark/Dockerfile",
        "credentials.env",
    ]
    for name in kept + left_out:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / ".dockerignore").write_text((PROJECT / ".dockerignore").read_text())
    assert sorted(map(str, context_files(tmp_path))) == sorted(kept)


def test_a_dockerfile_is_read_as_an_engine_reads_it() -> None:
    text = """# comment
FROM docker.io/library/python:3.11-slim AS build
ENV A=one \\
    B="two words"

RUN first \\
 # in between
 && second 'a\\b' # not a comment
COPY --from=other --chown=1:1 a b /to/
HEALTHCHECK --interval=10s CMD ["check", "it"]
FROM python:3.11-slim
CMD ["serve"]
"""
    first, second = parse(text)
    assert (first.base, first.name, second.name) == ("docker.io/library/python:3.11-slim", "build", None)
    assert first.last("ENV").pairs() == {"A": "one", "B": "two words"}
    assert first.last("RUN").text == "first  && second 'a\\b' # not a comment"
    copy = first.last("COPY")
    assert (copy.flags, copy.words(), copy.line) == ({"from": "other", "chown": "1:1"}, ["a", "b", "/to/"], 9)
    assert first.last("HEALTHCHECK").text == 'CMD ["check", "it"]'
    assert second.last("CMD").words() == ["serve"]
    assert expand("/x:$A-${B}$C", {"A": "1", "B": "2"}) == "/x:1-2"


@pytest.mark.parametrize("text", ["FROM a AS b\nSHELL x\n", "RUN x\n", "FROM a\nRUN x \\\n", "FROM a b c\n"])
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(AssertionError, match="line"):
        parse(text)
