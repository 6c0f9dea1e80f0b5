"""Type names that the whole package shares."""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
