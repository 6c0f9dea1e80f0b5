"""The number of dead letters that a run may make: above it the batch fails, before any of it is published. Pure."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from kafscale.errors import KafscaleError, SettingError

OPTION: Final = "--max-dead-letters"
LEGAL: Final = "a number of records, or a share of a commit's records such as 0.5%"
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_COUNT = re.compile(r"[0-9]{1,18}")


class DeadLetterLimitError(KafscaleError):
    """More values did not decode than the run allows; nothing of the batch is visible."""

    def __init__(self, topic: str, problem: str, table: str) -> None:
        super().__init__(
            f"topic {topic!r} has {problem}, and {OPTION} allows fewer; nothing of this batch is visible: see that "
            f"format and schema are right, or allow more, after which {table} has them with their reasons"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterLimit:
    """`count`: of a topic in a run; `percent`: of the records of one commit. None: any number."""

    count: int | None = None
    percent: Decimal | None = None


def parse_limit(texts: tuple[str, ...]) -> DeadLetterLimit:
    """The values of the option: a number, a share, or both. Raises `SettingError`."""
    count: int | None = None
    percent: Decimal | None = None
    for text in texts:
        share = _SHARE.fullmatch(text.strip())
        if share is not None and Decimal(share[1]) <= 100 and percent is None:
            percent = Decimal(share[1])
        elif _COUNT.fullmatch(text.strip()) and count is None:
            count = int(text)
        else:
            raise SettingError(f"{OPTION} {text[:100]!r} is not legal: it must be {LEGAL}, each once")
    return DeadLetterLimit(count=count, percent=percent)


class DeadLetterBudget:
    """The rest of a topic's limit in a run. `table`: of the dead letters, for messages."""

    def __init__(self, topic: str, limit: DeadLetterLimit, table: str) -> None:
        self._topic = topic
        self._limit = limit
        self._table = table
        self._spent = 0

    def check(self, dead_letters: int, records: int) -> None:
        """Raise `DeadLetterLimitError` if a batch of `records` may not have so many."""
        count, percent = self._limit.count, self._limit.percent
        if count is not None and self._spent + dead_letters > count:
            before = f", after {self._spent} in commits before" if self._spent else ""
            raise self._refused(f"{dead_letters} dead letters among {records} records{before}")
        if percent is not None and dead_letters * 100 > percent * records:
            raise self._refused(
                f"{dead_letters} dead letters among {records} records, which is more than {percent}%"
            )

    def spend(self, dead_letters: int) -> None:
        """The batch is published."""
        self._spent += dead_letters

    def _refused(self, problem: str) -> DeadLetterLimitError:
        return DeadLetterLimitError(self._topic, problem, self._table)
