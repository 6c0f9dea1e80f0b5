"""Every way in which a request to the bucket can fail, and what the caller is told of it."""

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from obstore.store import S3Store

from kafscale.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.objects.bucket.config import open_bucket
from kafscale.objects.bucket.requests import Patience
from kafscale.objects.bucket.store import BucketStore
from kafscale.settings.broker import load_settings
from tests.support.ports import free_port
from tests.support.scripted_s3 import Answer, How, ScriptedS3, error, scripted_s3
from tests.support.waiting import PATIENCE_SEC

if TYPE_CHECKING:
    from obstore.store import ClientConfig

KEY = "n/t/0/segment"
SLOW_DOWN = error(503, "SlowDown")
# Enough for a machine that is busy with other tests; and so little that it is soon used up.
PATIENCE = Patience(attempt_sec=1.0, call_sec=20.0, first_pause_sec=0.01, last_pause_sec=0.05)
IMPATIENCE = Patience(attempt_sec=0.3, call_sec=0.4, first_pause_sec=0.01, last_pause_sec=0.05)
# Where each attempt is answered, and none may end in doubt because the machine stood still.
WAITS_FOR_ANSWERS = replace(IMPATIENCE, attempt_sec=PATIENCE_SEC, call_sec=1.0)
Call = Callable[[BucketStore], Awaitable[object]]

READS: dict[str, Call] = {
    "get": lambda store: store.get(KEY),
    "get_range": lambda store: store.get_range(KEY, 0, 4),
    "read_into": lambda store: store.read_into(KEY, 0, 4, [memoryview(bytearray(4))]),
    "size_bytes": lambda store: store.size_bytes(KEY),
    "list": lambda store: _listed(store),
}
REPEATED_WRITES: dict[str, Call] = {
    "put": lambda store: store.put(KEY, [b"body"]),
    "delete": lambda store: store.delete([KEY]),
}
CALLS = READS | REPEATED_WRITES | {"put_if_absent": lambda store: store.put_if_absent(KEY, [b"body"])}


async def _listed(store: BucketStore) -> list[str]:
    return [info.key async for info in store.list("n/")]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedS3]:
    async with scripted_s3() as scripted:
        scripted.objects[KEY] = b"there already"
        yield scripted


def store_of(server: ScriptedS3, patience: Patience = PATIENCE, **overrides: str) -> BucketStore:
    return open_bucket(load_settings(server.settings | overrides), patience)


@pytest.fixture
def store(server: ScriptedS3) -> BucketStore:
    return store_of(server)


@pytest.fixture
def impatient(server: ScriptedS3) -> BucketStore:
    return store_of(server, IMPATIENCE)


def prepare(server: ScriptedS3, name: str) -> None:
    if name == "put_if_absent":
        server.objects.clear()


NOT_DONE = {
    "slow down": SLOW_DOWN,
    "too many": error(429, "TooManyRequests"),
    "conflict": error(409, "ConditionalRequestConflict"),
    "stalled": error(400, "RequestTimeout"),
    "damaged": error(400, "BadDigest"),
}


@pytest.mark.parametrize("answer", NOT_DONE.values(), ids=NOT_DONE)
@pytest.mark.parametrize("name", CALLS)
async def test_a_request_that_was_not_carried_out_is_tried_again(
    server: ScriptedS3, store: BucketStore, name: str, answer: Answer
) -> None:
    prepare(server, name)
    server.script += [answer, answer]
    await CALLS[name](store)
    assert len(server.requests) == 3


@pytest.mark.parametrize("name", CALLS)
async def test_a_store_that_is_busy_for_too_long_is_unavailable(server: ScriptedS3, name: str) -> None:
    server.script += [SLOW_DOWN] * 10_000
    store = store_of(server, WAITS_FOR_ANSWERS)
    with pytest.raises(StoreUnavailableError, match="503 SlowDown") as caught:
        await CALLS[name](store)
    assert not isinstance(caught.value, StoreRefusedError)
    # With pauses that grow to 25 to 50 ms in a second: about 25, and by no means hundreds.
    assert 2 < len(server.requests) < 45


MAYBE_DONE = {
    "500": error(500, "InternalError"),
    "503 of a proxy": Answer(status=503, body=b"no upstream"),
    "504": Answer(status=504, body=b"upstream timed out"),
    "lost reply": Answer(how=How.DROP),
    "held": Answer(how=How.HOLD),
}


NO_ANSWER = {name: answer for name, answer in MAYBE_DONE.items() if answer.how is not How.DROP}


@pytest.mark.parametrize("answer", NO_ANSWER.values(), ids=NO_ANSWER)
async def test_conditional_put_of_unknown_outcome_is_not_retried(
    server: ScriptedS3, store: BucketStore, answer: Answer
) -> None:
    """The second would meet the first, and call the key taken by somebody else."""
    server.objects.clear()
    server.script.append(answer)
    with pytest.raises(StoreIndeterminateError):
        await store.put_if_absent(KEY, [b"body"])
    assert server.methods() in (["PUT"], [])


@pytest.mark.parametrize("size_bytes", [0, 10, 3_000_000])
async def test_after_a_lost_reply_the_object_is_looked_at(
    server: ScriptedS3, store: BucketStore, size_bytes: int
) -> None:
    body = random.Random(size_bytes).randbytes(size_bytes)
    parts = [body[: size_bytes // 3], body[size_bytes // 3 :]]
    server.script.append(Answer(how=How.DROP))
    await store.put_if_absent("n/ours", parts)
    assert server.objects["n/ours"] == body
    assert server.methods() == ["PUT", "GET"]


@pytest.mark.parametrize("size_bytes", [0, 10, 3_000_000])
@pytest.mark.parametrize("difference", ["shorter", "longer", "first", "last"])
async def test_after_a_lost_reply_another_object_is_another_object(
    server: ScriptedS3, store: BucketStore, size_bytes: int, difference: str
) -> None:
    body = random.Random(size_bytes).randbytes(size_bytes)
    others = {"shorter": body[1:], "longer": body + b"x", "first": b"!" + body[1:], "last": body[:-1] + b"!"}
    if (other := others[difference]) == body:
        other = b"anything"
    server.objects[KEY] = other
    server.script.append(Answer(how=How.DROP))
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent(KEY, [body[: size_bytes // 3], body[size_bytes // 3 :]])
    assert server.objects[KEY] == other


@pytest.mark.parametrize("then", [error(404, "NoSuchKey"), error(500, "InternalError"), Answer(how=How.DROP)])
async def test_lost_reply_and_unseen_object_stays_unknown(
    server: ScriptedS3, store: BucketStore, then: Answer
) -> None:
    server.script += [Answer(how=How.DROP), then]
    with pytest.raises(StoreIndeterminateError):
        await store.put_if_absent("n/ours", [b"body"])
    assert server.methods() == ["PUT", "GET"]


@pytest.mark.parametrize("answer", MAYBE_DONE.values(), ids=MAYBE_DONE)
@pytest.mark.parametrize("name", [*READS, *REPEATED_WRITES])
async def test_what_may_be_repeated_is(
    server: ScriptedS3, store: BucketStore, name: str, answer: Answer
) -> None:
    server.script.append(answer)
    await CALLS[name](store)
    assert not server.script


@pytest.mark.parametrize("answer", MAYBE_DONE.values(), ids=MAYBE_DONE)
@pytest.mark.parametrize("name", REPEATED_WRITES)
async def test_a_write_whose_outcome_stays_unknown_says_so(
    server: ScriptedS3, impatient: BucketStore, name: str, answer: Answer
) -> None:
    server.script += [answer] * 10_000
    with pytest.raises(StoreIndeterminateError):
        await CALLS[name](impatient)


async def test_a_refusal_after_an_unknown_outcome_does_not_hide_it(
    server: ScriptedS3, store: BucketStore
) -> None:
    server.script += [error(500, "InternalError"), error(403, "AccessDenied")]
    with pytest.raises(StoreIndeterminateError, match="InternalError"):
        await store.put(KEY, [b"body"])


@pytest.mark.parametrize("answer", MAYBE_DONE.values(), ids=MAYBE_DONE)
@pytest.mark.parametrize("name", READS)
async def test_of_a_read_it_is_always_known_what_it_did(
    server: ScriptedS3, impatient: BucketStore, name: str, answer: Answer
) -> None:
    server.script += [answer] * 10_000
    with pytest.raises(StoreUnavailableError):
        await CALLS[name](impatient)


REFUSALS = {
    "rights": (error(403, "AccessDenied"), "check the credentials"),
    "user": (error(403, "InvalidAccessKeyId"), "check the credentials"),
    "token": (error(400, "ExpiredToken"), "check the credentials"),
    "bucket": (error(404, "NoSuchBucket"), "create the bucket"),
    "no S3 at all": (Answer(status=404, body=b"<html>Not Found</html>"), "KAFSCALE_S3_ENDPOINT"),
    "region": (Answer(status=301), "KAFSCALE_S3_REGION"),
    "unknown header": (error(501, "NotImplemented"), "that the store can do what was asked"),
    "method": (error(405, "MethodNotAllowed"), "KAFSCALE_S3_ENDPOINT"),
}


@pytest.mark.parametrize(("answer", "advice"), REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("name", CALLS)
async def test_a_refusal_is_raised_at_once_with_what_to_look_at(
    server: ScriptedS3, store: BucketStore, name: str, answer: Answer, advice: str
) -> None:
    server.script.append(answer)
    with pytest.raises(StoreRefusedError, match=advice):
        await CALLS[name](store)
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", CALLS)
async def test_refused_connection_has_done_nothing(server: ScriptedS3, name: str) -> None:
    store = store_of(server, WAITS_FOR_ANSWERS, KAFSCALE_S3_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(StoreUnavailableError) as caught:
        await CALLS[name](store)
    assert not isinstance(caught.value, StoreRefusedError)


@pytest.fixture
async def tls_server(tmp_path: Path) -> AsyncIterator[ScriptedS3]:
    """Its authority's certificate is in `tmp_path`, and nobody knows it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with scripted_s3(tls=context) as scripted:
        yield scripted


async def test_a_certificate_that_is_not_trusted_is_a_refusal(tls_server: ScriptedS3) -> None:
    with pytest.raises(StoreRefusedError, match="SSL_CERT_FILE"):
        await store_of(tls_server).put_if_absent(KEY, [b"body"])
    assert not tls_server.requests


async def test_an_authority_of_ones_own_can_be_trusted(
    tls_server: ScriptedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    await store_of(tls_server).put_if_absent(KEY, [b"body"])
    assert tls_server.objects[KEY] == b"body"


async def test_connection_that_takes_too_long_has_done_nothing() -> None:
    """A listener whose queue is full: the next connection waits."""
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        options: ClientConfig = {"allow_http": True, "connect_timeout": "200ms"}
        endpoint = f"http://127.0.0.1:{full.getsockname()[1]}"
        bucket = S3Store(
            "records",
            endpoint=endpoint,
            access_key_id="key",
            secret_access_key="secret",
            client_options=options,
            retry_config={"max_retries": 0},
        )
        with pytest.raises(StoreUnavailableError):
            await BucketStore(bucket, concurrency=1, patience=WAITS_FOR_ANSWERS).put_if_absent(KEY, [b"body"])


@pytest.mark.parametrize("answer", [Answer(status=412), Answer(status=416)], ids=["412", "416"])
async def test_senseless_answer_is_not_a_missing_object(
    server: ScriptedS3, store: BucketStore, answer: Answer
) -> None:
    server.script.append(answer)
    with pytest.raises(StoreRefusedError):
        await store.get(KEY)


async def test_answers_to_the_question_are_no_failures(server: ScriptedS3, store: BucketStore) -> None:
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent(KEY, [b"body"])
    for name, call in READS.items():
        if name != "list":
            server.objects.clear()
            with pytest.raises(ObjectNotFoundError):
                await call(store)


@pytest.mark.parametrize("size_bytes", [10, 300_000, 5_000_000])
async def test_a_body_that_ends_early_is_read_again(
    server: ScriptedS3, store: BucketStore, size_bytes: int
) -> None:
    body = random.Random(size_bytes).randbytes(size_bytes)
    server.objects[KEY] = body
    target = memoryview(bytearray(size_bytes))
    server.script += [Answer(how=How.CUT)] * 2
    assert await store.get(KEY) == body
    server.script += [Answer(how=How.CUT)] * 2
    assert await store.get_range(KEY, 1, size_bytes) == body[1:]
    server.script += [Answer(how=How.CUT)] * 2
    assert await store.read_into(KEY, 0, size_bytes, [target]) == size_bytes
    assert target == body


async def test_a_body_that_always_ends_early_is_never_returned(
    server: ScriptedS3, impatient: BucketStore
) -> None:
    server.script += [Answer(how=How.CUT)] * 10_000
    for call in READS.values():
        with pytest.raises(StoreUnavailableError):
            await call(impatient)


async def test_an_answer_of_another_range_is_not_taken(server: ScriptedS3, store: BucketStore) -> None:
    wrong = Answer(status=200, body=b"all of it", headers={"last-modified": "Thu, 01 Jan 2026 00:00:00 GMT"})
    server.script.append(wrong)
    assert await store.get_range(KEY, 0, 5) == b"there"
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", CALLS)
async def test_a_store_that_never_answers_is_left_in_time(
    server: ScriptedS3, impatient: BucketStore, name: str
) -> None:
    server.script += [Answer(how=How.HOLD)] * 10_000
    began = asyncio.get_running_loop().time()
    with pytest.raises(StoreError):
        await CALLS[name](impatient)
    assert asyncio.get_running_loop().time() - began < IMPATIENCE.call_sec + IMPATIENCE.attempt_sec + 5


async def test_a_deletion_that_is_not_allowed_is_refused(server: ScriptedS3, store: BucketStore) -> None:
    """S3 says so of each object, under status 200."""
    told = f"<Error><Key>{KEY}</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    server.script.append(Answer(status=200, body=f"<DeleteResult>{told}</DeleteResult>".encode()))
    with pytest.raises(StoreRefusedError, match="check the credentials"):
        await store.delete([KEY])


async def test_the_error_fits_on_a_line_and_names_the_request(server: ScriptedS3, store: BucketStore) -> None:
    server.script.append(error(403, "AccessDenied"))
    with pytest.raises(StoreRefusedError) as caught:
        await store.put_if_absent(KEY, [b"body"])
    text = str(caught.value)
    assert text.startswith(
        f"PUT http://127.0.0.1:{server.port}/records/{KEY}: 403 AccessDenied: as the test said"
    )
    assert "\n" not in text
