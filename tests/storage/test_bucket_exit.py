"""A process that used the bucket ends with the exit code that it means to: the library's threads do not end it."""

import subprocess
import sys
from pathlib import Path

from tests.support.process import clean_environment
from tests.support.s3_server import s3_server

PROCESSES = 8  # without the pause in `close` every sixth of them was aborted
PROGRAM = """
import asyncio, os
from kafscale.settings import load_settings
from kafscale.storage.bucket.config import open_bucket

async def main():
    store = open_bucket(load_settings(os.environ))
    await asyncio.gather(*(store.put(f"n/{number}", [b"x"]) for number in range(8)))
    await asyncio.gather(*(store.get(f"n/{number}") for number in range(8)))
    await store.close()

asyncio.run(main())
"""


def test_a_process_ends_cleanly_right_after_it_used_the_bucket(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server:
        environment = clean_environment() | server.settings
        for _ in range(PROCESSES):
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, "")
