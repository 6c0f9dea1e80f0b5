"""A member's reason for joining or leaving (KIP-800), cut for the log."""

from typing import Final

MAX_REASON_CHARACTERS: Final = 255
"""As much as the Java client sends."""


def logged_reason(reason: str | None) -> str:
    """The reason, cut for a log line; empty without one."""
    return (reason or "")[:MAX_REASON_CHARACTERS]
