"""The quotas of one request's client: what the request uses is measured, and the connection is muted.

As in Kafka a reply leaves at once, with the time for which nothing more is read from its connection (KIP-219). Made
for a request only while there are quotas of users or client ids.

The time of a request is that which it takes of the event loop in its handler. What is done for many requests
together, such as a flush, and what threads do, counts for none of them.
"""

import asyncio
import copy
import time
import types
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from kafscale.ops.metrics import Metrics
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.fetch import FetchRequest
from kafscale.protocol.quota_kinds import QuotaKind
from kafscale.protocol.throttle_time import with_throttle_time
from kafscale.protocol.types import Buffer
from kafscale.security.client_quotas import PERCENT_PER_SEC, ClientQuotas

T = TypeVar("T")


class Muted(Protocol):
    """The connection, as far as it can be muted."""

    @property
    def remaining_ms(self) -> int:
        """For how much longer it is muted."""

    def extend(self, delay_ms: int) -> None:
        """Mute it for so long at least."""


class RequestThrottle:
    """Of one request. `version`: of the API, as requested."""

    __slots__ = (
        "_api",
        "_client_id",
        "_is_answered",
        "_is_permissive",
        "_loop",
        "_metrics",
        "_mutation_delay_ms",
        "_mute",
        "_quotas",
        "_running_since_sec",
        "_used_sec",
        "_user",
        "_version",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        metrics: Metrics,
        mute: Muted,
        *,
        user: str,
        client_id: str | None,
        api: ApiKey,
        version: int,
    ) -> None:
        self._quotas = quotas
        self._metrics = metrics
        self._mute = mute
        self._user = user
        self._client_id = client_id or ""
        self._api = api
        self._version = version
        self._loop = asyncio.get_running_loop()
        self._used_sec = self._running_since_sec = 0.0
        self._is_answered = False
        self._is_permissive = False
        self._mutation_delay_ms = 0

    # --- produce and fetch

    def produced(self, size_bytes: int) -> None:
        """A Produce request of this size has come: its connection is muted while it is handled."""
        if self._quotas.produce.is_set:
            delay_ms = self._quotas.produce.record(self._user, self._client_id, size_bytes, self._now_ms())
            if delay_ms:
                self._apply(QuotaKind.PRODUCE, delay_ms)

    def limited(self, fetch: FetchRequest) -> FetchRequest:
        """The fetch with limits that its quota allows at once."""
        most = self.limited_bytes(fetch.max_bytes)
        if most >= fetch.max_bytes:
            return fetch
        return fetch._replace(max_bytes=most, min_bytes=min(fetch.min_bytes, most))

    def limited_bytes(self, max_bytes: int) -> int:
        """The bytes that a fetch's quota allows at once, and no more than these."""
        quota = self._quotas.fetch
        most = quota.most_at_once(self._user, self._client_id) if quota.is_set else None
        return max_bytes if most is None else min(max_bytes, int(most))

    def shared(self, size_bytes: int) -> None:
        """A share fetch is answered with so many bytes. They are not withheld: its member has the records already."""
        if self._quotas.fetch.is_set:
            delay_ms = self._quotas.fetch.record(self._user, self._client_id, size_bytes, self._now_ms())
            self._apply(QuotaKind.FETCH, delay_ms)

    def withholds(self, size_bytes: int) -> bool:
        """True if a fetch's reply of this size must not be sent: its client gets an empty one, and has to wait."""
        if not self._quotas.fetch.is_set:
            return False
        delay_ms, is_withheld = self._quotas.fetch.withhold(
            self._user, self._client_id, size_bytes, self._now_ms()
        )
        if delay_ms:
            self._apply(QuotaKind.FETCH, delay_ms)
        return is_withheld

    # --- mutations

    def mutate(self, partition_count: int, *, is_strict: bool) -> None:
        """Count partitions that are created or deleted.

        `is_strict`: raises `KafkaError` THROTTLING_QUOTA_EXCEEDED, and counts nothing, while the quota is used up.
        """
        quota, now_ms = self._quotas.mutation, self._now_ms()
        if is_strict:
            delay_ms = quota.delay_ms(self._user, self._client_id, now_ms)
            if delay_ms:
                self._mutation_delay_ms = max(self._mutation_delay_ms, delay_ms)
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )
        quota.take(self._user, self._client_id, partition_count, now_ms)
        self._is_permissive = not is_strict

    def take_back(self, partition_count: int) -> None:
        """Partitions that were counted are not created or deleted."""
        self._quotas.mutation.take(self._user, self._client_id, -partition_count, self._now_ms())

    # --- the reply

    def answered(self, answer: T) -> T:
        """The message to send, with the throttle time. A frame of bytes gets it in `marked`."""
        self._decide()
        remaining_ms = self._mute.remaining_ms
        if remaining_ms and hasattr(answer, "throttle_time_ms"):
            answer = copy.copy(answer)  # It may be one that many requests share.
            answer.throttle_time_ms = remaining_ms
        return answer

    def marked(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """The frame to send, with the throttle time where it was encoded by hand."""
        self._decide()
        remaining_ms = self._mute.remaining_ms
        if not remaining_ms:
            return buffers
        return with_throttle_time(self._api, self._version, buffers, remaining_ms)

    def _decide(self) -> None:
        """Count what the request has used, and mute its connection; once."""
        if self._is_answered:
            return
        if self._running_since_sec:
            now_sec = time.perf_counter()
            self._used_sec += now_sec - self._running_since_sec
            self._running_since_sec = now_sec
        self._is_answered = True
        if self._is_permissive:
            delay_ms = self._quotas.mutation.delay_ms(self._user, self._client_id, self._now_ms())
            self._mutation_delay_ms = max(self._mutation_delay_ms, delay_ms)
        if self._mutation_delay_ms:
            self._apply(QuotaKind.MUTATION, self._mutation_delay_ms)
        if self._used_sec:
            self._apply(QuotaKind.REQUEST, self._record_time())

    # --- the time of the request

    def run(self, handle: Callable[[], Awaitable[None] | None]) -> Awaitable[None] | None:
        """Call the handler, and measure it."""
        if not self._quotas.request.is_set:
            return handle()
        self._start_clock()
        try:
            awaiting = handle()
        finally:
            self._stop_clock()
        if awaiting is None:
            return None
        return _timed(awaiting.__await__(), self._start_clock, self._stop_clock)

    def _start_clock(self) -> None:
        self._running_since_sec = time.perf_counter()

    def _stop_clock(self) -> None:
        self._used_sec += time.perf_counter() - self._running_since_sec
        self._running_since_sec = 0.0
        if self._is_answered:
            self._record_time()  # The rest counts, too, but for the requests after this.

    def _record_time(self) -> int:
        used, self._used_sec = self._used_sec * PERCENT_PER_SEC, 0.0
        return self._quotas.request.record(self._user, self._client_id, used, self._now_ms())

    def _apply(self, kind: QuotaKind, delay_ms: int) -> None:
        if delay_ms:
            self._metrics.throttle(kind).observe(delay_ms / 1000)
            self._mute.extend(delay_ms)

    def _now_ms(self) -> float:
        return self._loop.time() * 1000


@types.coroutine
def _timed(steps: Any, start: Callable[[], None], stop: Callable[[], None]) -> Generator[Any, Any, None]:
    """Await what `steps` iterates over; its steps are measured, without what they wait for."""
    advance, value = steps.send, None
    while True:
        start()
        try:
            awaited = advance(value)
        except StopIteration:
            return
        finally:
            stop()
        try:
            yield awaited
            advance, value = steps.send, None
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as problem:  # noqa: BLE001 - the awaited coroutine handles it, a cancellation too
            advance, value = steps.throw, problem
