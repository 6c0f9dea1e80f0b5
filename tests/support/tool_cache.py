"""Programs compiled, and jars fetched, once for all checkouts: in `~/.cache/kafscale-tools` or below XDG_CACHE_HOME.

A file is kept under what it was built from, with its checksum; one that does not fit its checksum is built again.
"""

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path


def cache_folder() -> Path:
    """The folder of the cached programs; it may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafscale-tools"


def take(names: Iterable[str], stamp: str, folder: Path) -> bool:
    """Copy the programs that were built from what `stamp` says into the folder: all of them, or none (False)."""
    source = _place(stamp)
    wanted = list(names)
    if not all(_is_sound(source / name) for name in wanted):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        _copy(source / name, folder / name)
    return True


def keep(names: Iterable[str], stamp: str, folder: Path) -> None:
    """Copy programs of the folder into the cache. Best-effort: without the space or the right they are not kept."""
    target = _place(stamp)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            _copy(folder / name, target / name)
            _checksum_file(target / name).write_text(_checksum(target / name))
    except OSError as problem:
        print(f"not kept in {target}: {problem}", flush=True)


def _place(stamp: str) -> Path:
    built_from = f"{platform.system()} {platform.machine()} {stamp}"
    return cache_folder() / hashlib.sha256(built_from.encode()).hexdigest()[:32]


def _is_sound(program: Path) -> bool:
    expected = _checksum_file(program)
    return program.exists() and expected.exists() and expected.read_text() == _checksum(program)


def _checksum_file(program: Path) -> Path:
    return program.with_name(f"{program.name}.sha256")


def _checksum(program: Path) -> str:
    with program.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _copy(source: Path, target: Path) -> None:
    """Whole or not at all: another checkout may read it at the same time."""
    staging = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        shutil.copy2(source, staging / target.name)
        (staging / target.name).replace(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
