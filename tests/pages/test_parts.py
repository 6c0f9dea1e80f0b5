"""Tables, bars, lines and pages of lists."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.pages.markup import element, written
from kafscale.pages.parts import ROWS_PER_PAGE, bar, first_row, last_page, line, number, pages, table, text
from tests.pages.html import parsed


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_every_page_begins_within_the_list(total: int, page: int) -> None:
    start = first_row(page, total)
    assert start % ROWS_PER_PAGE == 0
    assert 0 <= start < max(1, total)
    assert first_row(last_page(total), total) + ROWS_PER_PAGE >= total


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_links_lead_to_pages_that_are_there(total: int, page: int) -> None:
    made = pages("/topics", page, total, "topics", sort="in")
    if total <= ROWS_PER_PAGE:
        assert made is None
        return
    assert made is not None
    document = parsed(written(element("html", made)))
    numbers = [int(target.partition("page=")[2]) for target in document.links]
    assert all(1 <= at <= last_page(total) and at != min(page, last_page(total)) for at in numbers)
    assert numbers == sorted(numbers)


def test_one_page_has_no_links() -> None:
    assert pages("/topics", 1, ROWS_PER_PAGE, "topics") is None


def test_a_table_without_rows_says_so() -> None:
    document = parsed(written(element("html", table((text("A"), number("B")), [], empty="Nothing."))))
    assert document.text.strip() == "Nothing."


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_bar_is_within_its_ground(part: float, whole: float) -> None:
    made = bar(part, whole, "share")
    if whole <= 0:
        assert made is None
        return
    assert made is not None
    width = made.find("rect")
    assert width is not None
    assert 0 <= float(width.get("width", "")) <= 100


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e12)), max_size=20).map(sorted))
def test_a_line_is_within_its_box(values: list[tuple[float, float]]) -> None:
    made = line(values, "rate")
    if len(values) < 3:
        assert made is None
        return
    assert made is not None
    points = made.find("polyline")
    assert points is not None
    for point in points.get("points", "").split():
        x, _, y = point.partition(",")
        assert 0 <= float(x) <= 200
        assert 0 <= float(y) <= 30
