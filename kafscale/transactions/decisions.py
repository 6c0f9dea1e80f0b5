"""The consequence of an event: an answer, or a record to be stored before there is one. Values."""

from dataclasses import dataclass

from kafscale.formats.transaction_record import TransactionRecord
from kafscale.protocol.error_codes import ErrorCode
from kafscale.transactions.events import NO_PRODUCER, ProducerIdAndEpoch


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is answered with an error, and nothing changes."""

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The request is answered, and nothing changes."""

    producer: ProducerIdAndEpoch = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class Store:
    """The record replaces the one that was decided on; when it is stored, `then` follows.

    In a state of preparing, the marker keys are to be put with it.
    """

    record: TransactionRecord
    then: Refuse | Reply = Reply()


@dataclass(frozen=True, slots=True)
class Remove:
    """The record is deleted: the transactional id has expired."""


@dataclass(frozen=True, slots=True)
class NeedProducerId:
    """The event is to be applied again with a new producer id: the epochs of the old one are used up."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """The coordinator has nothing to do."""


Decision = Refuse | Reply | Store | Remove | NeedProducerId | Ignore
