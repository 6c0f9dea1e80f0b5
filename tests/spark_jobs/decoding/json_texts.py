"""JSON texts for Hypothesis: valid ones, odd ones, and ones that are broken in one place."""

from hypothesis import strategies as st

_NAMES = st.sampled_from(["a", "b", "c", "A", "d\\u0065", "", "€", 'q\\"'])
_NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-300, 300).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        [
            "1.0",
            "1e2",
            "-0.0",
            "1E400",
            "9007199254740993",
            "1.10",
            "1e-400",
            "2147483648",
            "1" * 39,
            "16777217",
            "NaN",
            "-Infinity",
            "Inf",
            "-NaN",
            "12.345",
        ]
    ),
)
_STRINGS = st.sampled_from(
    [
        '""',
        '"x"',
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"2024-05-31"',
        '"2024-02-30"',
        '"2024-05-31T10:00:00Z"',
        '"2024-05-31 10:00:00.1234567+02:00"',
        '"2024-05-31T10:00"',
        '"AQI="',
        '"1.25"',
        '" 1"',
        '"NaN"',
        '"\\u0000"',
        '"Inf"',
        '": Inf"',
        '"€"',
        '"a,b]}"',
    ]
)
_SCALARS = st.one_of(_NUMBERS, _STRINGS, st.sampled_from(["null", "true", "false", "[]", "{}"]))


def _object(pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}"


def _objects(values: st.SearchStrategy[str], max_size: int) -> st.SearchStrategy[str]:
    """Names may repeat."""
    return st.lists(st.tuples(_NAMES, values), max_size=max_size).map(_object)


VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"), _objects(inner, 3)
    ),
    max_leaves=6,
)
OBJECTS = _objects(VALUES, 4)


@st.composite
def _broken(draw: st.DrawFn) -> bytes:
    """An object with a byte taken out, changed or put in."""
    text = draw(OBJECTS).encode()
    position = draw(st.integers(0, len(text)))
    inserted = draw(
        st.sampled_from([b"", b"}", b"{", b",", b'"', b"\n", b"\xff", b"\0", b" ", b"[", b"]", b"\\", b"1"])
    )
    return text[:position] + inserted + text[position + draw(st.integers(0, 1)) :]


DATA = st.one_of(
    OBJECTS.map(str.encode),
    OBJECTS.map(lambda text: text.replace(" ", "\n").encode()),
    VALUES.map(str.encode),
    _broken(),
    st.tuples(OBJECTS, OBJECTS).map(lambda pair: "\n".join(pair).encode()),
    st.tuples(OBJECTS, OBJECTS).map(lambda pair: "".join(pair).encode()),
)
