"""The requests that an object store's provider bills, and their prices. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.settings.broker import Settings
from kafscale.settings.journal import is_directory_bucket

GB_BYTES: Final = 2**30
"""The bytes of a GB as S3 bills it."""

DAYS_PER_MONTH: Final = 30

_THOUSAND: Final = 1000
_FIELDS: Final = {
    "1000_puts": "per_1000_puts",
    "1000_gets": "per_1000_gets",
    "gb_written": "per_gb_written",
    "gb_read": "per_gb_read",
    "gb_month": "per_gb_month",
}


class Operation(StrEnum):
    """A request to a bucket, by S3's name for it, which is also the one in a bill."""

    PUT_OBJECT = "PutObject"
    CREATE_MULTIPART_UPLOAD = "CreateMultipartUpload"
    UPLOAD_PART = "UploadPart"
    COMPLETE_MULTIPART_UPLOAD = "CompleteMultipartUpload"
    ABORT_MULTIPART_UPLOAD = "AbortMultipartUpload"
    LIST_OBJECTS = "ListObjectsV2"
    GET_OBJECT = "GetObject"
    HEAD_OBJECT = "HeadObject"
    DELETE_OBJECT = "DeleteObject"
    DELETE_OBJECTS = "DeleteObjects"


class PriceClass(StrEnum):
    """The operations of one price, by the request that most of them are."""

    PUT = "put"
    GET = "get"
    FREE = "free"


PRICE_CLASSES: Final[Mapping[Operation, PriceClass]] = {
    Operation.PUT_OBJECT: PriceClass.PUT,
    Operation.CREATE_MULTIPART_UPLOAD: PriceClass.PUT,
    Operation.UPLOAD_PART: PriceClass.PUT,
    Operation.COMPLETE_MULTIPART_UPLOAD: PriceClass.PUT,
    Operation.ABORT_MULTIPART_UPLOAD: PriceClass.FREE,
    Operation.LIST_OBJECTS: PriceClass.PUT,
    Operation.GET_OBJECT: PriceClass.GET,
    Operation.HEAD_OBJECT: PriceClass.GET,
    Operation.DELETE_OBJECT: PriceClass.FREE,
    Operation.DELETE_OBJECTS: PriceClass.FREE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars; by default those of Amazon S3 Standard in us-east-1 (docs/cost.md)."""

    per_1000_puts: float = Settings.price_per_1000_puts
    per_1000_gets: float = Settings.price_per_1000_gets
    per_gb_written: float = Settings.price_per_gb_written
    per_gb_read: float = Settings.price_per_gb_read
    per_gb_month: float = Settings.price_per_gb_month

    @classmethod
    def from_settings(cls, settings: Settings) -> "Prices":
        """The prices that the settings name."""
        return cls(
            per_1000_puts=settings.price_per_1000_puts,
            per_1000_gets=settings.price_per_1000_gets,
            per_gb_written=settings.price_per_gb_written,
            per_gb_read=settings.price_per_gb_read,
            per_gb_month=settings.price_per_gb_month,
        )

    @classmethod
    def of_journals(cls, settings: Settings) -> "Prices":
        """Those of the journal bucket. Storage is not priced: entries are stored for an hour or two."""
        name = settings.journal_bucket
        usual = EXPRESS_ONE_ZONE if name and is_directory_bucket(name) else cls.from_settings(settings)
        return cls(
            per_1000_puts=_or(settings.journal_price_per_1000_puts, usual.per_1000_puts),
            per_1000_gets=_or(settings.journal_price_per_1000_gets, usual.per_1000_gets),
            per_gb_written=_or(settings.journal_price_per_gb_written, usual.per_gb_written),
            per_gb_read=_or(settings.journal_price_per_gb_read, usual.per_gb_read),
            per_gb_month=usual.per_gb_month,
        )

    @classmethod
    def from_units(cls, units: Mapping[str, float]) -> "Prices":
        """The inverse of `by_unit`. Raises `KeyError` for a unit that is missing."""
        return cls(**{field: units[unit] for unit, field in _FIELDS.items()})

    def by_unit(self) -> dict[str, float]:
        """The prices by the unit that each is for, as they are exported."""
        return {unit: getattr(self, field) for unit, field in _FIELDS.items()}

    def of_request(self, operation: Operation) -> float:
        """The dollars of one request, without its bytes."""
        match PRICE_CLASSES[operation]:
            case PriceClass.PUT:
                return self.per_1000_puts / _THOUSAND
            case PriceClass.GET:
                return self.per_1000_gets / _THOUSAND
            case PriceClass.FREE:
                return 0.0

    def of_written(self, size_bytes: float) -> float:
        """The dollars of bytes sent to the bucket."""
        return size_bytes / GB_BYTES * self.per_gb_written

    def of_read(self, size_bytes: float) -> float:
        """The dollars of bytes read from the bucket."""
        return size_bytes / GB_BYTES * self.per_gb_read

    def of_stored(self, size_bytes: float) -> float:
        """The dollars a month of bytes that are stored."""
        return size_bytes / GB_BYTES * self.per_gb_month


EXPRESS_ONE_ZONE: Final = Prices(
    per_1000_puts=0.00113, per_1000_gets=0.00003, per_gb_written=0.0032, per_gb_read=0.0006, per_gb_month=0.11
)
"""Amazon S3 Express One Zone's, in us-east-1 (docs/cost.md)."""


def _or(price: float | None, usual: float) -> float:
    return usual if price is None else price
