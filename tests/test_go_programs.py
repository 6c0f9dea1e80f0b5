"""Programs of published Go modules: what the empty module says, and what is said where they cannot be built."""

import json
from pathlib import Path

import pytest

from tests.support.go_programs import GoPrograms, build
from tests.support.installing import CannotInstallError

PROGRAMS = GoPrograms(
    module="example.org/tool",
    version="v1.2.3",
    packages=("example.org/tool/cmd/one", "example.org/tool/cmd/two"),
    replaced_version="v0.2.3",
    variables=(("main.version", "v1.2.3"),),
)
GO_MOD = {
    "Go": "1.24.0",
    "Godebug": [{"Key": "default", "Value": "go1.24"}],
    "Replace": [
        {"Old": {"Path": "example.org/part"}, "New": {"Path": "./staging/part"}},
        {"Old": {"Path": "example.org/other"}, "New": {"Path": "example.org/fork", "Version": "v0.9.0"}},
    ],
}
# Stands for Go: remembers what it was given, and builds files that say so.
FAKE_GO = """#!/bin/sh
case "$1 $2" in
"mod download") echo '{{"GoMod": "{folder}/go.mod"}}' ;;
"mod edit") [ {version} != go1.19.8 ] && echo '{description}' ;;
"env GOVERSION") echo {version} ;;
"build "*)
    cp go.mod {folder}/wrapper
    printf '%s\\n' "$@" > {folder}/arguments
    echo "one.go: something is wrong" >&2
    if [ {exit_code} = 0 ]; then for name in one two; do echo "$name" > "bin/$name"; done; fi
    exit {exit_code} ;;
esac
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder before all others on the PATH."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def fake_go(folder: Path, *, version: str = "go1.26.1", exit_code: int = 0) -> None:
    script = FAKE_GO.format(
        description=json.dumps(GO_MOD), version=version, folder=folder, exit_code=exit_code
    )
    (folder / "go.mod").write_text("module example.org/tool\n\ngo 1.24.0\n")
    (folder / "go").write_text(script)
    (folder / "go").chmod(0o755)


def test_replacements_by_folders_become_the_published_version(path: Path, tmp_path: Path) -> None:
    fake_go(path)
    build(PROGRAMS, tmp_path / "built")
    assert (path / "wrapper").read_text().splitlines() == [
        "module wrapper",
        "go 1.24.0",
        "godebug default=go1.24",
        "require example.org/tool v1.2.3",
        "replace example.org/part => example.org/part v0.2.3",
        "replace example.org/other => example.org/fork v0.9.0",
    ]
    arguments = (path / "arguments").read_text().splitlines()
    assert "-ldflags=-s -w -X main.version=v1.2.3" in arguments
    assert arguments[-2:] == ["example.org/tool/cmd/one", "example.org/tool/cmd/two"]
    assert sorted(each.name for each in (tmp_path / "built").iterdir()) == ["one", "two"]


def test_a_build_that_fails_says_why_and_leaves_nothing(path: Path, tmp_path: Path) -> None:
    fake_go(path, exit_code=2)
    with pytest.raises(
        CannotInstallError, match=r"one and two ended with exit code 2: one\.go: something is"
    ):
        build(PROGRAMS, tmp_path / "built")
    assert list((tmp_path / "built").iterdir()) == []


def test_an_older_go_is_refused_by_its_version(path: Path, tmp_path: Path) -> None:
    fake_go(path, version="go1.19.8")
    with pytest.raises(
        CannotInstallError, match=r"needs Go 1\.24\.0 or newer, and `go` on the PATH is go1\.19"
    ):
        build(PROGRAMS, tmp_path / "built")
    assert not (tmp_path / "built").exists()
