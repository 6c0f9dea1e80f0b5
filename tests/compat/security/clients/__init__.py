"""Each client behind one surface: what it does with an `Access`, and by which error it says that it may not."""

from typing import Protocol

from tests.support.security_plan import Access


class Client(Protocol):
    """A client under test.

    An error is given by the client's own name for it: the class of an exception, or the name of a code. None says
    that there was none.
    """

    name: str
    mechanisms: tuple[str, ...]

    def create(self, access: Access, topic: str) -> None:
        """Create a topic of one partition, with the client's own administrator."""

    def produce(self, access: Access, topic: str, values: list[str]) -> str | None:
        """Send the values to a topic, and give the first error."""

    def consume(self, access: Access, topic: str, group: str, count: int) -> list[str]:
        """The first values of a topic, read as a member of a group. Raises `Refused`."""

    def refusal(self, access: Access) -> str | None:
        """The error with which it is kept out, when it comes as this."""


class Refused(Exception):  # noqa: N818 (an answer of the broker, not a failure of the test)
    """The broker did not let the client consume. Its text is the error's name."""
