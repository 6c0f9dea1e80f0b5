"""Values of a dump: text as it is, anything else marked, and nothing that a terminal obeys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.commands.dump_values import shown_bytes, shown_name


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", ""),
        (b'plain text, {"a": "b\\\\c"}', '{"a": "b\\\\c"}'.join(["plain text, ", ""])),
        ("žluťoučký 漢字 🎉".encode(), "žluťoučký 漢字 🎉"),
        (b"tab\tbetween", "tab\tbetween"),
        (b"two\nlines\\", r"escaped:two\nlines\\"),
        (b"tab\tand\x07bell", r"escaped:tab\tand\x07bell"),
        (b"\x1b[31mred\x1b]0;title\x07", r"escaped:\x1b[31mred\x1b]0;title\x07"),
        ("c1 \u009b31m".encode(), r"escaped:c1 \x9b31m"),
        ("turned \u202e round".encode(), r"escaped:turned \u202e round"),
        ("tag \U000e0041".encode(), r"escaped:tag \U000e0041"),
        (b"\x00\xff\xfe", "hex:00fffe"),
        (b"hex:00", "escaped:hex:00"),
        (b"escaped:x", "escaped:escaped:x"),
    ],
)
def test_how_bytes_are_shown(data: bytes, shown: str) -> None:
    assert shown_bytes(data) == shown


@given(
    st.one_of(st.binary(max_size=20), st.text(max_size=20).map(lambda text: text.encode("utf-8", "ignore")))
)
def test_what_is_shown_is_harmless_and_can_be_turned_back(data: bytes) -> None:
    shown = shown_bytes(data)
    assert shown.replace("\t", "").isprintable()
    if shown.startswith("hex:"):
        back = bytes.fromhex(shown.removeprefix("hex:"))
    elif shown.startswith("escaped:"):
        # Python's own escapes are the same; what is not ASCII stays as it is.
        ascii_only = shown.removeprefix("escaped:").encode("ascii", "backslashreplace")
        back = ascii_only.decode("unicode_escape").encode()
    else:
        back = shown.encode()
    assert back == data


def test_names_are_harmless_too() -> None:
    assert shown_name("a\x1b[2J/b c.kfs") == r"a\x1b[2J/b c.kfs"
    assert shown_name("surrogate \udcff") == r"surrogate \udcff"
    assert shown_name(r"C:\plain") == r"C:\plain"
