"""The time of a request by stage: counted, and logged if it is long, when its reply has left."""

from collections.abc import Sequence
from typing import Protocol


class ReplyTimes(Protocol):
    """When a request and its reply reached their steps, by `time.perf_counter`."""

    @property
    def received_sec(self) -> float:
        """The request's last byte has arrived."""

    @property
    def started_sec(self) -> float:
        """Its handler is called."""

    @property
    def ready_sec(self) -> float:
        """The reply is made."""

    @property
    def size_bytes(self) -> int:
        """The reply's size."""

    @property
    def times(self) -> "RequestTimes | None":
        """Its handler's notes."""


class RequestTimes(Protocol):
    """A handler's notes on the time of a request, given to its `Reply` before `send`."""

    def finish(self, replies: Sequence[ReplyTimes], left_sec: float, slow_sec: float) -> Sequence[ReplyTimes]:
        """Count the stages of replies that have left together, each with a `RequestTimes` of this class.

        Returns those that took longer than `slow_sec`: until the reply was made, without what the request waited at
        its client's wish. How fast a client takes its reply is its own part: a Java consumer that is busy with
        earlier records does not read.
        """

    def describe(self, reply: ReplyTimes, left_sec: float) -> dict[str, object]:
        """The fields of the log line for a slow request: stages in milliseconds, and what explains them.

        Text that the client chose is cut.
        """


def milliseconds(seconds: float) -> float:
    """For a log line: to a tenth."""
    return round(seconds * 1000, 1)
