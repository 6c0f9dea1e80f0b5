"""Dropping the page cache of a folder: what was read from memory before is not any more."""

import os
from pathlib import Path

import pytest

from bench.page_cache import drop_page_cache
from bench.process import filesystem_type

_SIZE = 256 * 1024


def _is_cached(path: Path) -> bool:
    """True if the file's first page can be read without waiting for the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.preadv(descriptor, [bytearray(4096)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_the_files_below_are_not_in_memory_any_more(tmp_path: Path) -> None:
    if filesystem_type(tmp_path) == "tmpfs":
        pytest.skip("this file system is memory")
    (tmp_path / "deep").mkdir()
    files = [tmp_path / "one", tmp_path / "deep" / "two"]
    for path in files:
        path.write_bytes(os.urandom(_SIZE))
    assert all(map(_is_cached, files))
    assert drop_page_cache(tmp_path) == 2
    assert not any(map(_is_cached, files))
    assert all(len(path.read_bytes()) == _SIZE for path in files)
