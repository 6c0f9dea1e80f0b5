"""Bytecode of a checkout, kept for the next one: an archive of `.pyc` files with the checksums of their sources.

A new checkout has the sources of the one before, mostly, and packages of the same versions: to compile them once more
takes a minute of two cores. Bytecode is believed where its source has the same bytes, and gets a header that fits the
file that is there now. Python itself corrects the path that a module's code names; pytest does not, for modules whose
assertions it has rewritten.
"""

import hashlib
import importlib.util
import marshal
import os
import platform
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

HEADER_BYTES = 16
_FLAGS = slice(4, 8)
_BY_TIME = bytes(4)  # PEP 552: neither flag; other bytecode names a hash of its source
_PARTS = ("bench", "kafscale", "scripts", "spark_jobs", "tests")
_REWRITTEN = "-pytest-"


def archive(cache: Path) -> Path:
    """Where the bytecode of this Python is kept."""
    return cache / f"bytecode-{sys.implementation.cache_tag}-{platform.machine()}.zip"


def keep(checkout: Path, target: Path) -> int:
    """Write the archive of the checkout's bytecode that is valid now; how many files. Best-effort: it may be full."""
    count = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as staging:
            new = Path(staging) / target.name
            with zipfile.ZipFile(new, "w") as kept:
                for path in _compiled(checkout):
                    content = path.read_bytes()
                    source = source_of(path)
                    if source.is_file() and content[:HEADER_BYTES] == header_for(source, content):
                        info = zipfile.ZipInfo(str(path.relative_to(checkout)))
                        info.comment = _checksum(source)
                        kept.writestr(info, content)
                        count += 1
            new.replace(target)
    except OSError as problem:
        print(f"bytecode is not kept in {target}: {problem}", flush=True)
    return count


def restore(checkout: Path, kept_in: Path) -> tuple[int, int]:
    """Write the bytecode of all sources that are as they were; how many, and of how many others there was some."""
    if not kept_in.is_file():
        return 0, 0
    restored = others = 0
    with zipfile.ZipFile(kept_in) as kept:
        for info in kept.infolist():
            path = checkout / info.filename
            source = source_of(path)
            if not source.is_file() or _checksum(source) != info.comment:
                others += 1
                continue
            content = kept.read(info)
            code = content[HEADER_BYTES:]
            if _REWRITTEN in path.name:
                code = marshal.dumps(_named(marshal.loads(code), str(source)))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(header_for(source, content) + code)
            restored += 1
    return restored, others


def source_of(compiled: Path) -> Path:
    """`folder/name.py` of `folder/__pycache__/name.cpython-311.pyc`."""
    return compiled.parent.parent / f"{compiled.name.partition('.')[0]}.py"


def header_for(source: Path, compiled: bytes) -> bytes:
    """Of this bytecode, if it is that of the file as it is: by the file's time and size, or by its hash."""
    if compiled[_FLAGS] == _BY_TIME:
        now = source.stat()
        of_source = struct.pack("<II", int(now.st_mtime) & 0xFFFFFFFF, now.st_size & 0xFFFFFFFF)
    else:
        of_source = importlib.util.source_hash(source.read_bytes())
    return importlib.util.MAGIC_NUMBER + compiled[_FLAGS] + of_source


def _compiled(checkout: Path) -> Iterator[Path]:
    packages = checkout / ".venv" / "lib"
    for top in (*(checkout / part for part in _PARTS), packages):
        for folder, _, names in os.walk(top):
            if folder.endswith("__pycache__"):
                yield from (Path(folder) / name for name in sorted(names) if name.endswith(".pyc"))


def _checksum(source: Path) -> bytes:
    return hashlib.sha256(source.read_bytes()).digest()


def _named(code: CodeType, path: str) -> CodeType:
    """The code, and all code in it, of a module at this path."""
    constants = (_named(one, path) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=path, co_consts=tuple(constants))
