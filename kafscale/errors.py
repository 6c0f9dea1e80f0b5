"""The kinds of failure, named by what the caller should do about them."""

import errno
import os


class KafscaleError(Exception):
    """Base of every error that Kafscale raises on purpose."""


class SettingError(KafscaleError):
    """A setting cannot be used; the message names the setting, its value and what is legal."""


class StartupError(KafscaleError):
    """The broker cannot start; the message says what is wrong and the next step."""


def cannot_listen(address: object, purpose: str, error: OSError, setting: str) -> StartupError:
    """A listening socket that could not be had. `setting`: the variable or option that chooses another address.

    Event loops put a text of their own, with the address once more, in the place of the system's.
    """
    is_known = error.errno is not None and error.errno in errno.errorcode
    reason = os.strerror(error.errno or 0) if is_known else error.strerror or error
    return StartupError(
        f"cannot listen on {address} for {purpose}: {reason}; stop what uses it or set another {setting}"
    )


class StoreError(KafscaleError):
    """Base of the object store's and the metadata store's failures."""


class StoreUnavailableError(StoreError):
    """The store did not do what was asked and it is known that it did not: retry later."""


class StoreRefusedError(StoreUnavailableError):
    """The store answers, and refuses: credentials, rights or settings are wrong, and waiting does not help.

    The message says what to look at.
    """


class StoreIndeterminateError(StoreError):
    """The store may or may not have done what was asked: read back before deciding."""


class LeaseEndedError(StoreUnavailableError):
    """A transaction puts a key under a lease that has ended; nothing was done: take a new lease first."""

    def __init__(self, lease: int) -> None:
        super().__init__(f"lease {lease} has ended or never was")
        self.lease = lease


class ObjectExistsError(StoreError):
    """A put-if-absent met an object under its key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object {key!r} exists already")
        self.key = key


class ObjectNotFoundError(StoreError):
    """No object lies under the key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no object {key!r}")
        self.key = key


class ReadOptionError(SettingError, ValueError):
    """A parameter of a read cannot be used; the message names it, its value and what is legal."""


class UnknownTopicError(KafscaleError):
    """The topic does not exist, or is being deleted."""


class TopicReplacedError(UnknownTopicError):
    """The topic was deleted since a read of it began, and another of its name was created."""

    def __init__(self, topic: str, wanted_id: object, found_id: object) -> None:
        super().__init__(
            f"topic {topic!r} was deleted and created again: the read is of topic id {wanted_id}, and the topic of "
            f"this name has topic id {found_id} now"
        )
        self.topic = topic
        self.wanted_id = wanted_id
        self.found_id = found_id


class OffsetsGoneError(KafscaleError):
    """Records of a partition were asked for that are there no more: they expired, or went with their topic.

    They are those from `first_offset` to before `next_offset`.
    """

    def __init__(self, message: str, topic: str, partition: int, first_offset: int, next_offset: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.first_offset = first_offset
        self.next_offset = next_offset


class CorruptDataError(KafscaleError):
    """Stored or received bytes break their format; `name` says which object, `problem` what is wrong."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class UnknownFormatVersionError(CorruptDataError):
    """Stored bytes carry a version this program does not know."""

    def __init__(self, name: str, version: int, known: str) -> None:
        super().__init__(name, f"format version {version} is not known (known: {known})")
        self.version = version
