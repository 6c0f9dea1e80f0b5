"""One call to etcd: its deadline, which failures are retried, and the errors that the caller gets for the rest."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, TypeVar

import grpc

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.etcd.cancellation import cancellation_kept
from kafscale.metadata.etcd.config import EtcdConfig, EtcdTimeouts
from kafscale.metadata.etcd.connection import (
    CALL_ERRORS,
    EtcdConnection,
    EtcdRefusedError,
    code_and_details,
)
from kafscale.metadata.etcd.endpoints import EtcdEndpoints, refusal_of
from kafscale.metadata.etcd.verdict import NO_SPACE, Verdict, is_too_large, verdict_of

Result = TypeVar("Result", bound=Any)

Send = Callable[[EtcdConnection, float], Awaitable[Result]]
"""Sends a request on a connection, with a timeout in seconds, and gives etcd's answer, which has a header."""


class Repeat(Enum):
    """The next step after an attempt of unknown outcome."""

    READ = "retried: it changes nothing, so a failure is only a failure"
    IDEMPOTENT = "retried: twice is as good as once"
    NEVER = "left to the caller, who reads back"


class RequestTooLargeError(ValueError):
    """etcd does not take requests of this size; nothing was done."""


class _AttemptError(Exception):
    """One attempt failed. `in_doubt`: it may have been done."""

    def __init__(self, text: str, *, in_doubt: bool) -> None:
        super().__init__(text)
        self.in_doubt = in_doubt


class EtcdCalls:
    """Makes calls on whichever connection works."""

    def __init__(
        self,
        endpoints: EtcdEndpoints,
        config: EtcdConfig,
        timeouts: EtcdTimeouts,
        randomness: random.Random,
    ) -> None:
        self._endpoints = endpoints
        self._config = config
        self._timeouts = timeouts
        self._randomness = randomness

    async def call(self, what: str, send: Send[Result], repeat: Repeat) -> Result:
        """Send until there is an answer or the time is over; `what` names the request in errors.

        Raises `EtcdRefusedError` and `RequestTooLargeError` when etcd answered that it will not,
        `StoreUnavailableError` when it was not done for another reason, and `StoreIndeterminateError`, unless
        it is a `READ`, when that is not known.
        """
        loop = asyncio.get_running_loop()
        # An attempt has its full time or is not made: cut short, it would end in doubt for nothing.
        last_begin = loop.time() + self._timeouts.call_sec - self._timeouts.attempt_sec
        in_doubt = False
        while True:
            try:
                connection = await self._endpoints.connection(max(0.0, last_begin - loop.time()))
                return await self._attempt(what, connection, send)
            except EtcdRefusedError:
                raise
            except StoreUnavailableError as no_connection:
                failure, is_over = str(no_connection), True
            except _AttemptError as problem:
                in_doubt |= problem.in_doubt and repeat is not Repeat.READ
                failure = str(problem)
                is_over = (in_doubt and repeat is Repeat.NEVER) or loop.time() >= last_begin
            if is_over:
                kind = StoreIndeterminateError if in_doubt else StoreUnavailableError
                raise kind(f"{what}: {failure}")
            await asyncio.sleep(self._timeouts.first_pause_sec * self._randomness.uniform(0.5, 1))

    async def _attempt(self, what: str, connection: EtcdConnection, send: Send[Result]) -> Result:
        token = connection.token
        try:
            with cancellation_kept(connection.endpoint):
                answer = await send(connection, self._timeouts.attempt_sec)
            self._endpoints.check_cluster(connection, answer.header)
            return answer
        except EtcdRefusedError as of_another_cluster:
            # Whatever was done was not done in ours.
            self._endpoints.retire(connection)
            raise _AttemptError(str(of_another_cluster), in_doubt=False) from of_another_cluster
        except CALL_ERRORS as error:
            code, details = code_and_details(error)
        if is_too_large(code, details):
            raise RequestTooLargeError(f"{what}: {details} (etcd's --max-request-bytes, 1.5 MiB by default)")
        verdict = verdict_of(code, details)
        match verdict:
            case Verdict.REFUSED:
                advice = refusal_of(details, connection.endpoint, self._config)
                raise EtcdRefusedError(f"{what}: {advice or details}", details)
            case Verdict.LOGIN:
                await self._log_in_again(connection, token, details)
            case Verdict.ELSEWHERE | Verdict.UNKNOWN:
                self._endpoints.retire(connection)
            case Verdict.BUSY:
                # Another endpoint would be no better, and every watch would have to move there.
                await asyncio.sleep(self._timeouts.first_pause_sec)
        raise _AttemptError(
            _explained(connection.endpoint, code, details), in_doubt=verdict is Verdict.UNKNOWN
        )

    async def _log_in_again(self, connection: EtcdConnection, stale: str | None, details: str) -> None:
        if self._config.username is None:
            advice = refusal_of(details, connection.endpoint, self._config)
            raise EtcdRefusedError(advice or f"etcd at {connection.endpoint}: {details}", details)
        try:
            await connection.login(stale, self._timeouts.connect_sec)
        except CALL_ERRORS as error:
            self._endpoints.retire(connection)
            text = f"cannot log in again: {_explained(connection.endpoint, *code_and_details(error))}"
            raise _AttemptError(text, in_doubt=False) from error


def _explained(endpoint: str, code: grpc.StatusCode, details: str) -> str:
    text = f"etcd at {endpoint}: {code.name}: {details}"
    if details == NO_SPACE:
        text += " (compact and defragment etcd, then disarm its alarm: docs/operations.md)"
    return text
