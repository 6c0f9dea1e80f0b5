"""Repeated lines of a group: as many as are allowed in a window, and a count of the others."""

from kafscale.groups.line_window import LineWindow


def test_lines_within_the_limit_are_all_allowed() -> None:
    limit = LineWindow(3, window_ms=1000)
    assert [limit.take(at) for at in (0, 1, 2)] == [0, 0, 0]


def test_lines_past_the_limit_are_left_out_and_counted() -> None:
    limit = LineWindow(2, window_ms=1000)
    assert [limit.take(at) for at in (5, 5, 6, 1004)] == [0, 0, None, None]
    assert [limit.take(at) for at in (1005, 1006, 1007)] == [2, 0, None]


def test_a_clock_that_starts_anywhere_begins_a_window() -> None:
    limit = LineWindow(1, window_ms=1000)
    assert [limit.take(at) for at in (-5000, -4500, -4000)] == [0, None, 1]
