"""Shows bytes and names that untrusted clients may have written: on one line, and harmless to a terminal."""

_ESCAPED = "escaped:"
_HEX = "hex:"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def shown_bytes(data: bytes) -> str:
    """UTF-8 text as it is; `escaped:` and the text with escapes where it has control or invisible characters;
    `hex:` and the digits for anything else.

    Text that begins with one of the two marks is escaped, too, so that a mark is always a mark.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _HEX + data.hex()
    if _is_plain(text) and not text.startswith((_ESCAPED, _HEX)):
        return text
    return _ESCAPED + "".join(map(_escaped_in_text, text))


def shown_name(name: str) -> str:
    """A name or a message, each character that is not plain as an escape."""
    return name if _is_plain(name) else "".join(map(_escaped, name))


def _is_plain(text: str) -> bool:
    # Tabs move the cursor and nothing else, and are common between the columns of a value.
    return text.isprintable() or text.replace("\t", "").isprintable()


def _escaped_in_text(character: str) -> str:
    return _SHORT.get(character) or _escaped(character)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
