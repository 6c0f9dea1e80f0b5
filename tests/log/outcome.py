"""A producer's answer about a batch."""

import asyncio
from dataclasses import dataclass

from kafscale.log.batch_append import AppendRules
from kafscale.protocol.error_codes import ErrorCode

RULES = AppendRules(codec=None, log_append_time=False, segment_bytes=1 << 20)


class RefusedError(Exception):
    """The broker answered with an error code."""

    def __init__(self, error_code: int) -> None:
        super().__init__(ErrorCode(error_code).name)
        self.error_code = error_code


@dataclass
class Outcome:
    """The answer to one producer about one of its batches."""

    told: "asyncio.Future[int]"

    def published(self, base_offset: int, log_start_offset: int) -> None:
        if not self.told.done():
            self.told.set_result(base_offset)

    def refused(self, error_code: int, message: str) -> None:
        if not self.told.done():
            self.told.set_exception(RefusedError(error_code))
