"""The record values that the drivers send: pools of distinct records, the same for every peer."""

import random
import string

RANDOM = "random"
LOG = "log"
KINDS = (RANDOM, LOG)

_POOL_BYTES = 8 * 1024 * 1024
_MIN_RECORDS = 64
_PRINTABLE = (string.digits + string.ascii_letters + string.punctuation).encode()
_PATHS = ("/api/v1/orders", "/api/v1/carts", "/login", "/static/app.js", "/health", "/api/v1/search")
_LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARN")


def record_pool(kind: str, record_bytes: int, seed: int = 3) -> list[bytes]:
    """Distinct values of exactly `record_bytes` each, about 8 MiB together: more than a batch holds.

    `random`: 94 printable ASCII characters, equally likely; snappy and lz4 leave it as it is, zstd takes
    about a sixth off. `log`: access-log lines; snappy makes them 2.2, lz4 2.9, zstd 3.8 times smaller.
    Raises ValueError for another kind.
    """
    numbers = random.Random(seed)
    records = max(_MIN_RECORDS, _POOL_BYTES // record_bytes)
    if kind == RANDOM:
        everything = bytes(numbers.choices(_PRINTABLE, k=records * record_bytes))
    elif kind == LOG:
        everything = _log_text(numbers, records * record_bytes)
    else:
        raise ValueError(f"payload {kind!r} is unknown; legal: {', '.join(KINDS)}")
    return [everything[at : at + record_bytes] for at in range(0, records * record_bytes, record_bytes)]


def _log_text(numbers: random.Random, total_bytes: int) -> bytes:
    lines: list[bytes] = []
    written = 0
    while written < total_bytes:
        line = (
            f"2025-06-{numbers.randrange(1, 29):02d}T{numbers.randrange(24):02d}:{numbers.randrange(60):02d}"
            f":{numbers.randrange(60):02d}.{numbers.randrange(1000):03d}Z {numbers.choice(_LEVELS)} "
            f"client=10.{numbers.randrange(256)}.{numbers.randrange(256)}.{numbers.randrange(256)} "
            f"method=GET path={numbers.choice(_PATHS)}/{numbers.randrange(100_000)} status=200 "
            f"bytes={numbers.randrange(50_000)} duration_ms={numbers.randrange(900)} "
            f"trace={numbers.getrandbits(64):016x}\n"
        ).encode()
        lines.append(line)
        written += len(line)
    return b"".join(lines)[:total_bytes]
