"""A process that used the bucket ends with the exit code that it means to: the library's threads do not end it."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.support.nightly import by_day
from tests.support.process import clean_environment
from tests.support.s3_server import s3_server
from tests.support.scripted_s3 import Answer, How, scripted_s3
from tests.support.waiting import PATIENCE_SEC, wait_until_async

PROCESSES = by_day(3, by_night=8)  # without the pause in `close` every sixth of them was aborted
PROGRAM = """
import asyncio, os
from kafscale.settings.broker import load_settings
from kafscale.objects.bucket.config import open_bucket

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
                timeout=PATIENCE_SEC,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, "")


UPLOADING_PROGRAM = """
import asyncio, os, sys
from kafscale.settings.broker import load_settings
from kafscale.objects.bucket.config import open_bucket

async def chunks():
    yield bytes(3_000_000)

async def main():
    store = open_bucket(load_settings(os.environ), multipart_above_bytes=0, part_bytes=1_000_000)
    creating = asyncio.create_task(store.put_if_absent_streamed("n/a", chunks(), 3_000_000))
    await asyncio.to_thread(sys.stdin.readline)
    creating.cancel()
    await asyncio.wait([creating])
    await store.close()

asyncio.run(main())
"""


async def test_process_ends_while_a_server_holds_up_parts() -> None:
    """The threads of the upload wait for an answer for longer than a broker may take to stop."""
    async with scripted_s3() as server:
        server.upload_scripts["part"].extend([Answer(how=How.HOLD)] * 3)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            UPLOADING_PROGRAM,
            env=clean_environment() | server.settings,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

        async def all_wait() -> bool:
            return server.under_way == 3

        try:
            await wait_until_async(all_wait, "three parts wait for their answers")
            _, said = await asyncio.wait_for(process.communicate(b"now\n"), 15)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (process.returncode, said) == (0, b"")
