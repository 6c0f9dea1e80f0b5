"""Reads the schema files that the options name, on the driver."""

from pathlib import Path

from kafscale.errors import SettingError

_MAX_FILE_BYTES = 16 * 1024 * 1024


def read_bytes(path: str) -> bytes:
    """The file's content. Raises `SettingError` if it cannot be read, is empty or too large for a schema."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise SettingError(
            f"schema file {path!r}: cannot be read: {error}; legal is the path of a file"
        ) from None
    if not content:
        raise SettingError(f"schema file {path!r}: is empty")
    if len(content) > _MAX_FILE_BYTES:
        raise SettingError(f"schema file {path!r}: is larger than {_MAX_FILE_BYTES} bytes")
    return content


def read_text(path: str) -> str:
    """The file's text. Raises `SettingError`."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingError(f"schema file {path!r}: is not UTF-8 at byte {error.start}") from None
