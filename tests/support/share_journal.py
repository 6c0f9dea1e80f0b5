"""The events of a member of a share group, read from its log as that grows."""

import json
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from tests.support.share_checker import Delivery

NANOSECONDS = 1e9


class ShareJournal:
    """The deliveries of one member, in its order (`tests/support/share_clients.py`)."""

    def __init__(self, member: str, path: Path) -> None:
        self.deliveries: list[Delivery] = []
        self.errors: list[str] = []
        self.has_started = self.has_ended = False
        self._member = member
        self._path = path
        self._position = 0
        self._round = 0
        self._untold: list[Delivery] = []
        self._unanswered: dict[tuple[int, int], deque[Delivery]] = defaultdict(deque)

    def read(self) -> int:
        """Read on; returns how many records were received since the last call."""
        if not self._path.exists():
            return 0
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        before = len(self.deliveries)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                self._note(json.loads(line))
        return len(self.deliveries) - before

    def _note(self, row: dict[str, Any]) -> None:
        match row["event"]:
            case "started":
                self.has_started = True
            case "record":
                one = Delivery(
                    member=self._member,
                    round=self._round,
                    partition=row["partition"],
                    offset=row["offset"],
                    value=row["value"],
                    count=row["deliveries"],
                    at_s=row["at"] / NANOSECONDS,
                )
                self.deliveries.append(one)
                self._untold.append(one)
            case "telling":
                for one in self._untold:
                    one.told_s = row["at"] / NANOSECONDS
                    self._unanswered[one.partition, one.offset].append(one)
                self._untold.clear()
                self._round += 1
            case "acknowledged":
                for offset in row["offsets"]:
                    waiting = self._unanswered[row["partition"], offset]
                    assert waiting, f"{self._member}: an answer to nothing that it said: {offset} of {row}"
                    one = waiting.popleft()
                    one.answered_s, one.error = row["at"] / NANOSECONDS, row["error"]
            case "error":
                self.errors.append(row["message"])
            case "ended":
                self.has_ended = True
