"""The start-up probe: it passes on a store that keeps the promise, and sees through those that do not."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from kafscale.errors import (
    ObjectExistsError,
    StartupError,
    StoreIndeterminateError,
    StoreUnavailableError,
)
from kafscale.objects.bucket.config import open_bucket
from kafscale.objects.bucket.probe import CREATORS, ROUNDS, prove_conditional_writes
from kafscale.objects.bucket.requests import Patience
from kafscale.objects.memory_store import MemoryStore
from kafscale.objects.object_store import ObjectInfo
from kafscale.protocol.types import Buffer
from kafscale.settings.broker import load_settings
from tests.support.ports import free_port
from tests.support.s3_server import s3_server
from tests.support.scripted_s3 import Answer, How, error, scripted_s3

IMPATIENCE = Patience(attempt_sec=0.5, call_sec=1.0, first_pause_sec=0.01)


class Store(MemoryStore):
    """Keeps the promise, and yields to others as a server does; base of those that do not."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.calls = 0

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        self.calls += 1
        await asyncio.sleep(0)
        await super().put_if_absent(key, parts)


async def test_store_that_keeps_the_promise_passes_and_is_left_empty() -> None:
    store = Store()
    await prove_conditional_writes(store, "ns", "token")
    assert store.calls == ROUNDS * (CREATORS + 1)
    assert [info async for info in store.list("")] == []


async def test_the_probe_stays_below_its_own_prefix() -> None:
    class Witness(Store):
        async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
            assert key.startswith("_kafscale/ns/probe-token/")
            await super().put_if_absent(key, parts)

    await prove_conditional_writes(Witness(), "ns", "token")


class LooksThenPuts(Store):
    """Two creators may both see that there is nothing."""

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        if [info async for info in self.list(key)]:
            raise ObjectExistsError(key)
        await asyncio.sleep(0)
        await self.put(key, parts)


class IgnoresTheCondition(Store):
    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        await asyncio.sleep(0)
        await self.put(key, parts)


class ReplacesAndRefuses(Store):
    """Writes first and finds out then."""

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        there = [info async for info in self.list(key)]
        await self.put(key, parts)
        if there:
            raise ObjectExistsError(key)


class RefusesTheRaceOnly(Store):
    """Notices creators that come at the same moment, and no others."""

    def __init__(self) -> None:
        super().__init__()
        self._racing: set[str] = set()

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        if key in self._racing:
            raise ObjectExistsError(key)
        self._racing.add(key)
        await asyncio.sleep(0)
        await self.put(key, parts)
        self._racing.discard(key)


class ForgetsWhatItCreated(Store):
    async def get(self, key: str) -> bytes:
        await self.delete([key])
        return await super().get(key)


class ShowsWhatALoserPut(Store):
    async def get(self, key: str) -> bytes:
        return b"creator 1 " * 2


class ListsNothing(Store):
    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return
        yield


class RefusesEverything(Store):
    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        raise ObjectExistsError(key)


LIARS = (
    LooksThenPuts,
    IgnoresTheCondition,
    ReplacesAndRefuses,
    RefusesTheRaceOnly,
    ForgetsWhatItCreated,
    ShowsWhatALoserPut,
    ListsNothing,
    RefusesEverything,
)


@pytest.mark.parametrize("liar", LIARS)
async def test_a_store_that_breaks_the_promise_is_refused(liar: type[Store]) -> None:
    store = liar()
    with pytest.raises(StartupError):
        await prove_conditional_writes(store, "ns", "token")
    assert [info async for info in MemoryStore.list(store, "")] == []


async def test_the_error_says_what_would_happen_and_what_to_do() -> None:
    with pytest.raises(
        StartupError, match=r"16 of 16 creators.*would be lost\. Use a store whose conditional"
    ):
        await prove_conditional_writes(IgnoresTheCondition(), "ns", "token")


async def test_a_store_that_never_answers_a_put_proves_nothing() -> None:
    class Forgetful(Store):
        async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
            raise StoreIndeterminateError("lost the request")

    with pytest.raises(StoreUnavailableError):
        await prove_conditional_writes(Forgetful(), "ns", "token")


async def test_the_winner_may_be_the_one_without_an_answer() -> None:
    class LosesTheWinnersReply(Store):
        async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
            await super().put_if_absent(key, parts)
            raise StoreIndeterminateError("lost the reply")

    await prove_conditional_writes(LosesTheWinnersReply(), "ns", "token")


async def test_one_that_was_refused_may_not_be_it() -> None:
    class LosesTheWinnersReply(ReplacesAndRefuses):
        async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
            await super().put_if_absent(key, parts)
            raise StoreIndeterminateError("lost the reply")

    with pytest.raises(StartupError, match="does not hold"):
        await prove_conditional_writes(LosesTheWinnersReply(), "ns", "token")


async def test_replies_lost_now_and_then_do_not_fail_the_probe() -> None:
    class Sometimes(Store):
        async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
            await super().put_if_absent(key, parts)
            if self.calls % (CREATORS + 1) == CREATORS:
                raise StoreIndeterminateError("lost the reply")

    await prove_conditional_writes(Sometimes(), "ns", "token")


async def test_the_real_server_passes(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server:
        for token in ("a", "b"):
            await prove_conditional_writes(open_bucket(load_settings(server.settings)), "ns", token)
        assert server.stored_files() == []


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("KAFSCALE_S3_BUCKET", "missing", "NoSuchBucket.*create the bucket"),
        ("KAFSCALE_S3_SECRET_KEY", "wrong", "SignatureDoesNotMatch.*check the credentials"),
        ("KAFSCALE_S3_ACCESS_KEY", "nobody", "_ACCESS_KEY"),
        ("KAFSCALE_S3_REGION", "eu-west-1", "the region.*is wrong.*_REGION"),
    ],
)
async def test_settings_that_the_real_server_refuses_end_the_start(
    tmp_path: Path, variable: str, value: str, said: str
) -> None:
    with s3_server(tmp_path) as server:
        store = open_bucket(load_settings(server.settings | {variable: value}))
        with pytest.raises(StartupError, match=said):
            await prove_conditional_writes(store, "ns", "token")


async def test_a_server_that_does_not_look_at_the_condition_is_refused() -> None:
    async with scripted_s3(ignores_conditions=True) as server:
        with pytest.raises(StartupError, match="creators of"):
            await prove_conditional_writes(open_bucket(load_settings(server.settings)), "ns", "token")


async def test_rights_that_are_missing_end_the_start() -> None:
    async with scripted_s3() as server:
        store = open_bucket(load_settings(server.settings))
        a_round = [Answer()] * (CREATORS + 3)  # creators, get, one that is too late, get
        for done_before in (0, CREATORS, CREATORS + 1, ROUNDS * len(a_round), ROUNDS * len(a_round) + 1):
            server.objects.clear()
            server.script.clear()
            server.script += [Answer()] * done_before + [error(403, "AccessDenied")]
            with pytest.raises(StartupError, match="check the credentials"):
                await prove_conditional_writes(store, "ns", "token")


async def test_a_store_that_is_away_is_no_reason_to_give_up() -> None:
    async with scripted_s3() as server:
        store = open_bucket(load_settings(server.settings), IMPATIENCE)
        for trouble in (error(503, "SlowDown"), error(500, "InternalError"), Answer(how=How.HOLD)):
            server.script.clear()
            server.script += [trouble] * 10_000
            with pytest.raises(StoreUnavailableError):
                await prove_conditional_writes(store, "ns", "token")
        away = {"KAFSCALE_S3_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
        with pytest.raises(StoreUnavailableError):
            await prove_conditional_writes(
                open_bucket(load_settings(server.settings | away), IMPATIENCE), "ns", "token"
            )
