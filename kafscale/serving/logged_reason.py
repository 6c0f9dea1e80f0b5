"""Why a member says that it joins or leaves (KIP-800), as far as it goes into the log."""

from typing import Final

MAX_REASON_CHARACTERS: Final = 255
"""As much as the Java client sends."""


def logged_reason(reason: str | None) -> str:
    """The reason, cut to what a log line can carry; empty without one."""
    return (reason or "")[:MAX_REASON_CHARACTERS]
