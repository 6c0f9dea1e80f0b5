"""Text that a client chose, made fit for a log line or an error message."""

from typing import Final

MAX_REASON_CHARACTERS: Final = 255
"""As much as the Java client sends."""


def quoted(text: str, max_characters: int = 100) -> str:
    """Return `text` without marks around it: unchanged when it is short and printable.

    Longer text is cut after `max_characters` and followed by its full length. A character that is not
    printable becomes its escape, of at most 10 characters, so the result has a bound too. In a sentence put
    marks around it, as in `f"There is no topic '{quoted(name)}'."`; a log field takes it as it is.
    """
    kept = text[:max_characters]
    if not kept.isprintable():
        kept = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in kept
        )
    return kept if len(text) <= max_characters else f"{kept}... ({len(text)} characters)"


def logged_reason(reason: str | None) -> str:
    """A member's reason for joining or leaving (KIP-800), cut for a log line; empty without one."""
    return (reason or "")[:MAX_REASON_CHARACTERS]
