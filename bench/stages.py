"""CPU of each stage of a produce request that is a function of its own: `python -m bench.stages`.

One batch to a request, into one partition. The cost of the kernel and the event loop is not included: docs/profile.md
says how to measure it.
"""

import statistics
import time
from collections.abc import Callable

from bench.payloads import record_pool
from bench.wire import produce_frame
from kafscale.formats.segment import body_crc
from kafscale.protocol.compression import Codec
from kafscale.protocol.header import parse_request_header
from kafscale.protocol.produce import (
    PartitionProduceResponse,
    decode_produce_request,
    encode_produce_response,
)
from kafscale.protocol.record_batch import compress_into, validate_batch

_LENGTH_BYTES = 4
_ROUND_SECONDS = 0.05
_ROUNDS = 7
_MAX_BATCH_BYTES = 1 << 30
_SHAPES = {"1 x 100 B": (1, 100), "16 x 1 KiB": (16, 1024), "1000 x 1 KiB": (1000, 1024)}
_PAYLOADS = ("random", "log")

Stages = dict[str, Callable[[], object]]


def microseconds(work: Callable[[], object]) -> float:
    """CPU of one call: the median of several rounds."""
    rounds = []
    for _ in range(_ROUNDS):
        calls = 0
        begin = time.process_time()
        while (spent := time.process_time() - begin) < _ROUND_SECONDS:
            for _ in range(10):
                work()
            calls += 10
        rounds.append(spent / calls)
    return statistics.median(rounds) * 1e6


def stages(values: list[bytes]) -> Stages:
    """Every stage of a request with one batch of these values, in the order of the path."""
    frame = memoryview(produce_frame("topic", 0, values, correlation_id=1))[_LENGTH_BYTES:]
    header = parse_request_header(frame)
    body = frame[header.body_offset :]
    name, partitions = decode_produce_request(body, header.api_version).topics[0]
    records = partitions[0][1]
    assert records is not None
    batch = validate_batch(records, 0, len(records), _MAX_BATCH_BYTES)
    room = memoryview(bytearray(len(records)))
    answer = PartitionProduceResponse(0, 0, 1, -1, 0, None)

    def copy() -> None:
        room[:] = records

    return {
        "request header": lambda: parse_request_header(frame),
        "request body": lambda: decode_produce_request(body, header.api_version),
        "batch header and CRC": lambda: validate_batch(records, 0, len(records), _MAX_BATCH_BYTES),
        "snappy": lambda: compress_into(records, batch, Codec.SNAPPY, room),
        "copy into the slab": copy,
        "CRC of the segment's body": lambda: body_crc([records]),
        "reply": lambda: encode_produce_response(1, header.api_version, [(name, [answer])]),
    }


def main() -> None:
    """Print a table for each payload."""
    for payload in _PAYLOADS:
        columns = [stages(record_pool(payload, size)[:count]) for count, size in _SHAPES.values()]
        print(f"| {payload}, us | {' | '.join(_SHAPES)} |")
        print(f"|---|{'---|' * len(_SHAPES)}")
        for stage in columns[0]:
            print(f"| {stage} | {' | '.join(f'{microseconds(column[stage]):.1f}' for column in columns)} |")
        print()


if __name__ == "__main__":
    main()
