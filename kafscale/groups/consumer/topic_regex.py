"""Regular expressions of subscriptions: RE2's syntax, as in Kafka, on the whole of a topic's name (KIP-848).

Matching takes time in proportion to the length of a name, whatever the expression: RE2 does not backtrack. What one
name may cost is bounded by the expression's size.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import re2

from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.tasks.thread_turns import ThreadTurns

MAX_PATTERN_BYTES: Final = 4 * 1024
"""The longest expression, in UTF-8. Kafka has no limit of its own."""

MAX_PROGRAM_SIZE: Final = 5_000
"""Instructions of a compiled expression: room for the longest one without repetitions. A name costs at most 5 ms."""

MAX_MEMORY_BYTES: Final = 256 * 1024
"""The memory that RE2 may take for one expression, compiled and with its automaton's states."""

NAMES_PER_PIECE: Final = 500
"""Names that are matched at a time: about 4 ms on a thread for a common expression."""


class TopicRegex:
    """An expression that names topics. Raises `KafkaError` INVALID_REGULAR_EXPRESSION; may be used by any thread."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern: Final = pattern
        self._compiled: Final = _compile(pattern)

    def matches(self, name: str) -> bool:
        """True if the expression describes the whole name."""
        return self._compiled.fullmatch(name) is not None


def _compile(pattern: str) -> Any:
    size_bytes = len(pattern.encode())
    if size_bytes > MAX_PATTERN_BYTES:
        raise _invalid(pattern, f"it has {size_bytes} bytes, at most {MAX_PATTERN_BYTES} are allowed")
    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False  # RE2 would write to stderr.
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as problem:
        raise _invalid(pattern, _text(problem)) from None
    finally:
        re2.purge()  # The library keeps the last 128 otherwise.
    if compiled.programsize > MAX_PROGRAM_SIZE:
        raise _invalid(
            pattern,
            f"it compiles to {compiled.programsize} instructions, at most {MAX_PROGRAM_SIZE} are allowed",
        )
    return compiled


def _text(problem: Exception) -> str:
    (said,) = problem.args
    return quoted(said.decode(errors="replace") if isinstance(said, bytes) else str(said))


def _invalid(pattern: str, problem: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{quoted(pattern)}` is not a valid regular expression: {problem}.",
    )


def matching(regex: TopicRegex, names: Iterable[str]) -> list[str]:
    """Those of the names that the expression describes, in their order."""
    return [name for name in names if regex.matches(name)]


def pieces(names: Iterable[str]) -> Iterator[Sequence[str]]:
    """The names, at most `NAMES_PER_PIECE` at a time."""
    remaining = iter(names)
    while piece := list(islice(remaining, NAMES_PER_PIECE)):
        yield piece


async def resolve(regex: TopicRegex, names: Iterable[str], turns: ThreadTurns) -> frozenset[str]:
    """Those of the names that the expression describes; a thread matches them piece by piece, in turn with others'.

    `names` must not change meanwhile.
    """
    found: list[str] = []
    for piece in pieces(names):
        found += await turns.run(partial(matching, regex, piece))
    return frozenset(found)
