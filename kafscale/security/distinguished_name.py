"""The subject of a certificate as text, exactly as Java prints it: Kafka's rules and ACLs are written for that.

RFC 2253 as `X500Principal.getName()` has it: the last name first; types outside RFC 2253 as OID and the value in
hexadecimal DER. Values are read as UTF-8 whatever their type says, as Java does.
"""

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_STRING_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})  # UTF8 … BMPString
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACES: Final = " \r"


def distinguished_name(der: bytes) -> str:
    """The text of an X.501 Name. Raises `ValueError` for bytes that are none."""
    ((_, names),) = _elements(der)
    relative = [
        "+".join(_attribute(attribute) for _, attribute in _elements(one)) for _, one in _elements(names)
    ]
    return ",".join(reversed(relative))


def _attribute(data: bytes) -> str:
    (_, type_data), (tag, value) = _elements(data)
    dotted = _object_identifier(type_data)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or tag not in _STRING_TAGS:
        whole = data[_header_bytes(data, 0) + len(type_data) :]
        return f"{keyword or dotted}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    first = len(text) - len(text.lstrip(_SPACES))
    last = len(text.rstrip(_SPACES))
    return "".join(
        f"\\{character}"
        if character in _ESCAPED or not first <= index < last
        else "\\00"
        if character == "\0"
        else character
        for index, character in enumerate(text)
    )


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each DER element in `data`."""
    position = 0
    while position < len(data):
        start = position + _header_bytes(data, position)
        end = start + _length(data, position)
        if end > len(data):
            raise ValueError("a DER element is cut off")
        yield data[position], data[start:end]
        position = end


def _header_bytes(data: bytes, position: int) -> int:
    first = _byte(data, position + 1)
    return 2 + (first & 0x7F if first & 0x80 else 0)


def _length(data: bytes, position: int) -> int:
    first = _byte(data, position + 1)
    if not first & 0x80:
        return first
    return int.from_bytes(data[position + 2 : position + 2 + (first & 0x7F)], "big")


def _byte(data: bytes, position: int) -> int:
    if position >= len(data):
        raise ValueError("a DER element is cut off")
    return data[position]


def _object_identifier(data: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an object identifier is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
