"""The line that says how far a read has come."""

import io

from kafscale.reader.progress_line import ProgressLine
from kafscale.reader.topic_batches import ReadProgress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def at(done: int) -> ReadProgress:
    return ReadProgress(
        topic="orders",
        partition=1,
        next_offset=done,
        offsets_done=done,
        offsets_total=4000,
        bytes_done=2 * 10**6,
        bytes_total=10**7,
    )


def test_at_most_two_lines_a_second_and_the_last_one() -> None:
    times = iter([0.0, 0.1, 0.6, 0.7, 2.0])
    output = io.StringIO()
    line = ProgressLine(output, lambda: next(times))
    for done in (100, 1000, 2000, 4000):
        line(at(done))
    assert output.getvalue().splitlines() == [
        "orders:  25 % of 4,000 offsets, 2 of 10 MB, 0.5 s, partition 1",
        "orders: 100 % of 4,000 offsets, 2 of 10 MB, 1.9 s, partition 1",
    ]


def test_a_terminal_s_line_is_written_over() -> None:
    times = iter([0.0, 1.0, 2.0])
    output = Terminal()
    line = ProgressLine(output, lambda: next(times))
    line(at(1000))
    line(at(4000))
    first, last = output.getvalue().split("\r")[1:]
    assert first.endswith("partition 1\033[K")
    assert last.endswith("\033[K\n")


def test_what_is_checked_before_the_read() -> None:
    times = iter([0.0, 0.4, 0.6, 5.0, 6.0])
    output = io.StringIO()
    line = ProgressLine(output, lambda: next(times))
    line.checked(10**8)
    line.checked(10**8)
    line(at(1000))
    line(at(4000))
    assert output.getvalue().splitlines() == [
        "checked 200 MB of the bucket",
        "orders:  25 % of 4,000 offsets, 2 of 10 MB, 0.0 s, partition 1",
        "orders: 100 % of 4,000 offsets, 2 of 10 MB, 1.0 s, partition 1",
    ]
