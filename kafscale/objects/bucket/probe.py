"""The start-up probe: does the store create an object at most once, and may the broker do all it has to?

A store whose conditional writes are not atomic could replace a published segment; no setting accepts one
(docs/decisions/0012-object-store-client.md).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from kafscale.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StartupError,
    StoreError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.formats import object_keys
from kafscale.objects.object_store import ObjectStore

ROUNDS = 3
CREATORS = 16

_NEXT_STEP = (
    "two leaders could both publish under one key, and acknowledged records would be lost. Use a store whose "
    "conditional writes (If-None-Match: *) are atomic, or a version or an address of this one where they are"
)


async def prove_conditional_writes(
    objects: ObjectStore,
    namespace: str,
    token: str,
    key_of: Callable[[str, str, int], str] = object_keys.probe_key,
) -> None:
    """Race creators for a few objects below `_kafscale/{namespace}/`, and remove them again.

    `token`: letters and digits, new for every probe. `key_of` makes keys in one folder, of one of the buckets. Raises
    `StartupError` when two creators win, an object is replaced, or the store refuses to work for this broker;
    `StoreUnavailableError` when it is away.
    """
    keys = [key_of(namespace, token, number) for number in range(ROUNDS)]
    try:
        for key in keys:
            await _race(objects, key)
        listed = {info.key async for info in objects.list(f"{keys[0].rpartition('/')[0]}/")}
        if listed != set(keys):
            raise StartupError(
                f"the object store lists {sorted(listed)} where {keys} were put: check KAFSCALE_S3_*"
            )
        await objects.delete(keys)
    except StartupError:
        with suppress(StoreError):
            await objects.delete(keys)
        raise
    except StoreRefusedError as problem:
        raise StartupError(f"the object store refuses to work for this broker: {problem}") from problem
    except StoreIndeterminateError as problem:
        raise StoreUnavailableError(str(problem)) from problem


async def _race(objects: ObjectStore, key: str) -> None:
    """One round. What its creators put differs in length as well."""
    bodies = [f"creator {number} ".encode() * (number + 1) for number in range(CREATORS)]
    attempts = [objects.put_if_absent(key, [body]) for body in bodies]
    winner, unknown = _judge(key, await asyncio.gather(*attempts, return_exceptions=True))
    try:
        content = await objects.get(key)
    except ObjectNotFoundError as problem:
        if winner is None:
            raise StoreUnavailableError(f"{key!r} was not created, as far as is known") from problem
        raise StartupError(f"{key!r} cannot be read right after it was put: {_NEXT_STEP}") from problem
    if content not in [bodies[number] for number in (unknown if winner is None else [winner])]:
        raise StartupError(f"{key!r} does not hold what its only creator put: {_NEXT_STEP}")
    await _come_too_late(objects, key, content)


async def _come_too_late(objects: ObjectStore, key: str, content: bytes) -> None:
    try:
        await objects.put_if_absent(key, [b"too late"])
    except ObjectExistsError:
        if await objects.get(key) != content:
            raise StartupError(f"{key!r} was replaced by a creator that was refused: {_NEXT_STEP}") from None
    else:
        raise StartupError(f"{key!r} was created although it existed: {_NEXT_STEP}")


def _judge(key: str, results: Sequence[BaseException | None]) -> tuple[int | None, Sequence[int]]:
    """The creators that got a success, and those that got no answer."""
    winners, unknown = [], []
    away: StoreUnavailableError | None = None
    for number, result in enumerate(results):
        match result:
            case None:
                winners.append(number)
            case StoreIndeterminateError():
                unknown.append(number)
            case StoreUnavailableError() if not isinstance(result, StoreRefusedError):
                away = result
            case ObjectExistsError():
                pass
            case _:
                raise result
    if len(winners) > 1:
        raise StartupError(
            f"{len(winners)} of {len(results)} creators of {key!r} got the answer that they won: {_NEXT_STEP}"
        )
    if not winners and not unknown:
        raise away or StartupError(
            f"no attempt could create {key!r}, although it was new: check what answers at KAFSCALE_S3_ENDPOINT"
        )
    return winners[0] if winners else None, unknown
