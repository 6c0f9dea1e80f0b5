"""`LineLimit`: how many lines of a kind get into the log."""

from kafscale.ops.line_limit import BURST_LINES, LINES_PER_SEC, MAX_KINDS, TRACEBACK_LINES, LineLimit


def admitted(limit: LineLimit, kind: object, count: int, now_sec: float, lines: int = 1) -> int:
    return sum(limit.admit(kind, now_sec, lines) is not None for _ in range(count))


def test_lines_beyond_the_burst_are_left_out() -> None:
    assert admitted(LineLimit(), "kind", BURST_LINES * 3, 7.0) == BURST_LINES


def test_first_line_after_a_gap_says_how_many_are_missing() -> None:
    limit = LineLimit()
    admitted(limit, "kind", BURST_LINES + 5, 0.0)
    assert limit.admit("kind", 1.0) == 5
    assert limit.admit("kind", 1.0) == 0


def test_lasting_rate_is_bounded() -> None:
    limit = LineLimit()
    written = sum(admitted(limit, "kind", 1_000, float(second)) for second in range(61))
    assert written == BURST_LINES + 60 * LINES_PER_SEC


def test_kinds_do_not_take_each_others_room() -> None:
    limit = LineLimit()
    admitted(limit, "one", BURST_LINES + 1, 0.0)
    assert limit.admit("other", 0.0) == 0


def test_tracebacks_count_for_many_lines() -> None:
    assert admitted(LineLimit(), "kind", 1_000, 0.0, TRACEBACK_LINES) == BURST_LINES // TRACEBACK_LINES


def test_kinds_beyond_the_table_share_one_limit() -> None:
    limit = LineLimit()
    assert sum(limit.admit(number, 0.0) is not None for number in range(50 * MAX_KINDS)) == (
        MAX_KINDS + BURST_LINES
    )
