"""The compaction process: looks into records, so that the broker's process does not. Started by `WorkerProcess`.

It reads requests from its standard input and answers them on its standard output (`worker_frames.py`), one after the
other, and ends with its input. It opens no store and no socket.
"""

import json
import os
import signal
import sys
from typing import Any, BinaryIO, Final

from kafscale.log.compaction.cleaned_transactions import AbortedRange
from kafscale.log.compaction.cleaner import Cleaner, CleaningRules
from kafscale.log.compaction.offset_map import OffsetMap
from kafscale.log.compaction.worker_frames import Frame, read_frame, write_frame

SECRET_BYTES: Final = 16
# The broker's own process goes first.
_NICENESS: Final = 5


def new_cleaner(rules: CleaningRules, memory_bytes: int, most_keys: int) -> Cleaner:
    """The cleaner of one compaction; see `OffsetMap`."""
    return Cleaner(OffsetMap(memory_bytes, most_keys, os.urandom(SECRET_BYTES)), rules)


def encode_begin(rules: CleaningRules, memory_bytes: int, most_keys: int) -> bytes:
    """The payload of `BEGIN`."""
    return json.dumps(
        {
            "memory_bytes": memory_bytes,
            "most_keys": most_keys,
            "now_ms": rules.now_ms,
            "delete_retention_ms": rules.delete_retention_ms,
            "first_dirty_offset": rules.first_dirty_offset,
            "last_batches": list(rules.last_batches.items()),
            "opened_limit_bytes": rules.opened_limit_bytes,
            "aborted": rules.aborted,
        }
    ).encode()


def _begun(payload: bytes) -> Cleaner:
    told: dict[str, Any] = json.loads(payload)
    rules = CleaningRules(
        now_ms=told["now_ms"],
        delete_retention_ms=told["delete_retention_ms"],
        first_dirty_offset=told["first_dirty_offset"],
        last_batches=dict(told["last_batches"]),
        opened_limit_bytes=told["opened_limit_bytes"],
        aborted=[AbortedRange(*one) for one in told["aborted"]],
    )
    return new_cleaner(rules, told["memory_bytes"], told["most_keys"])


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until their end."""
    cleaner: Cleaner | None = None
    while (frame := read_frame(requests)) is not None:
        kind, payload = frame
        try:
            if kind is Frame.BEGIN:
                cleaner = _begun(payload)
                answer = b""
            else:
                assert cleaner is not None, "BEGIN comes first"
                answer = _answer(cleaner, kind, payload)
        except Exception as problem:  # noqa: BLE001 - the broker reports it
            write_frame(answers, Frame.FAILED, f"{type(problem).__name__}: {problem}".encode())
        else:
            write_frame(answers, Frame.DONE, answer)


def _answer(cleaner: Cleaner, kind: Frame, payload: bytes) -> bytes:
    match kind:
        case Frame.MAP:
            cleaner.map_batches(memoryview(payload))
            return json.dumps([cleaner.is_full, cleaner.map_end_offset]).encode()
        case Frame.CLEAN:
            return cleaner.clean(memoryview(payload))
        case Frame.AGAIN:
            cleaner.again()
            return b""
        case Frame.END:
            rest, totals = cleaner.end_object()
            return json.dumps([rest.hex(), totals.as_values()]).encode()
        case _:
            raise ValueError(f"{kind.name} is no request")


def main() -> None:
    """The process's life."""
    # Ctrl-C in a terminal is for the broker, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except (BrokenPipeError, EOFError):
        # The broker was killed. Nothing is left to be written, at the interpreter's end neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
