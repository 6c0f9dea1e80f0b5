"""Large objects in a bucket of S3's: a multipart upload that is completed at most once, whatever goes wrong."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kafscale.errors import (
    ObjectExistsError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.objects.bucket.config import open_bucket
from kafscale.objects.bucket.multipart import MAX_OBJECT_BYTES, PART_BYTES, part_size_bytes
from kafscale.objects.bucket.requests import DEFAULT_PATIENCE, Patience
from kafscale.objects.bucket.store import BucketStore
from kafscale.protocol.types import Buffer
from kafscale.settings.broker import load_settings
from tests.support.s3_server import S3Server, s3_server
from tests.support.scripted_s3 import Answer, How, ScriptedS3, error, scripted_s3
from tests.support.scripted_uploads import completed
from tests.support.waiting import PATIENCE_SEC, wait_until_async

KIB, MIB = 2**10, 2**20
KEY = "n/t/0/segment-0.kfs"
BODY = bytes(range(250)) * 10  # three parts of 1,000 bytes, the last one shorter
IMPATIENCE = Patience(attempt_sec=3.0, call_sec=8.0, bytes_per_sec=1000 * MIB, first_pause_sec=0.01)
EAGER = Patience(first_pause_sec=0.01, last_pause_sec=0.05)
LOST = Answer(status=500, how=How.DROP)  # not carried out
SAID_TWICE = Answer(status=200, body=completed(KEY).encode())


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedS3]:
    async with scripted_s3() as server:
        yield server


@pytest.fixture
async def store(scripted: ScriptedS3) -> AsyncIterator[BucketStore]:
    opened = in_small_parts(scripted, EAGER)
    yield opened
    await opened.close()


@pytest.fixture
async def impatient(scripted: ScriptedS3) -> AsyncIterator[BucketStore]:
    opened = in_small_parts(scripted, IMPATIENCE)
    yield opened
    await opened.close()


def in_small_parts(
    server: ScriptedS3, patience: Patience = DEFAULT_PATIENCE, *left_out: str, **more: str
) -> BucketStore:
    settings = {name: value for name, value in server.settings.items() if name not in left_out} | more
    return open_bucket(load_settings(settings), patience, multipart_above_bytes=0, part_bytes=1000)


async def chunks_of(body: bytes, size_bytes: int = 333) -> AsyncIterator[Buffer]:
    for start in range(0, len(body), size_bytes):
        yield body[start : start + size_bytes]


async def create(store: BucketStore, body: bytes = BODY) -> None:
    await store.put_if_absent_streamed(KEY, chunks_of(body), len(body))


async def is_clean(server: ScriptedS3) -> None:
    """Wait until no upload is left."""

    async def nothing_is_left() -> bool:
        return not server.uploads.under_way

    await wait_until_async(nothing_is_left, "the upload is aborted")


class TestRequests:
    async def test_the_completion_is_conditional_and_parts_carry_checksums(
        self, scripted: ScriptedS3, store: BucketStore
    ) -> None:
        await create(store)
        assert scripted.objects == {KEY: BODY}
        operations = scripted.upload_operations()
        assert operations == ["mark", "begin", "part", "part", "part", "mark", "complete"]
        requests = dict(zip(operations, scripted.requests, strict=True))
        assert requests["complete"].headers["if-none-match"] == "*"
        assert re.findall(rb"<PartNumber>(\d)<", requests["complete"].body) == [b"1", b"2", b"3"]
        assert requests["complete"].body.count(b"<ChecksumCRC32C>") == 3
        for request in scripted.requests:
            if "partNumber" in request.query:
                assert request.headers["x-amz-checksum-crc32c"]
                assert request.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert len(requests["begin"].headers["x-amz-meta-kafscale-upload"]) == 32
        assert "x-amz-server-side-encryption" not in requests["begin"].headers

    async def test_region_token_and_encryption_key_reach_the_store(self, scripted: ScriptedS3) -> None:
        store = in_small_parts(
            scripted,
            KAFSCALE_S3_REGION="eu-central-1",
            KAFSCALE_S3_SESSION_TOKEN="temporary",
            KAFSCALE_S3_KMS_ARN="arn:aws:kms:eu-central-1:111122223333:key/abc",
        )
        await create(store)
        await store.close()
        for request in scripted.requests:
            assert "Credential=key/" in request.headers["authorization"]
            assert "/eu-central-1/s3/" in request.headers["authorization"]
            assert request.headers["x-amz-security-token"] == "temporary"
        begin = scripted.requests[1].headers
        assert begin["x-amz-server-side-encryption"] == "aws:kms"
        assert begin["x-amz-server-side-encryption-aws-kms-key-id"].endswith("key/abc")

    async def test_without_a_key_the_platform_gives_credentials_and_region(
        self, scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "config").write_text(
            "[default]\nregion = us-west-1\ns3 =\n  use_accelerate_endpoint = true\n"
        )
        for name, value in {
            "AWS_ACCESS_KEY_ID": "from-the-platform",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_SESSION_TOKEN": "platform-token",
            "AWS_REGION": "eu-west-3",
            "AWS_PROFILE": "nowhere",
            "AWS_CONFIG_FILE": str(tmp_path / "config"),
        }.items():
            monkeypatch.setenv(name, value)
        keys = ("KAFSCALE_S3_ACCESS_KEY", "KAFSCALE_S3_SECRET_KEY", "KAFSCALE_S3_REGION")
        store = in_small_parts(scripted, DEFAULT_PATIENCE, *keys)
        await create(store)
        await store.close()
        headers = scripted.requests[-1].headers
        assert "Credential=from-the-platform/" in headers["authorization"]
        assert "/eu-west-3/s3/" in headers["authorization"]
        assert headers["x-amz-security-token"] == "platform-token"

    async def test_a_key_of_ours_is_not_mixed_with_a_token_of_the_platform(
        self, scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", "of-other-credentials")
        store = in_small_parts(scripted)
        await create(store)
        await store.close()
        assert all("x-amz-security-token" not in request.headers for request in scripted.requests)

    async def test_an_object_up_to_the_threshold_is_one_request(self, scripted: ScriptedS3) -> None:
        store = open_bucket(
            load_settings(scripted.settings), multipart_above_bytes=len(BODY), part_bytes=1000
        )
        await create(store)
        await store.close()
        assert scripted.methods() == ["PUT"]

    async def test_few_parts_are_in_flight_at_the_same_time(self, scripted: ScriptedS3) -> None:
        scripted.pause_sec = 0.02
        store = open_bucket(load_settings(scripted.settings), multipart_above_bytes=0, part_bytes=5 * MIB)
        body = bytes(5 * MIB) * 12
        await create(store, body)
        await store.close()
        assert scripted.objects[KEY] == body
        assert 2 <= scripted.most_under_way <= 9


class TestFailuresOfParts:
    @pytest.mark.parametrize("operation", ["begin", "part", "mark"])
    @pytest.mark.parametrize(
        "answer", [error(500, "InternalError"), error(503, "SlowDown"), LOST, Answer(how=How.DROP)]
    )
    async def test_are_tried_again(
        self, scripted: ScriptedS3, store: BucketStore, operation: str, answer: Answer
    ) -> None:
        scripted.upload_scripts[operation].extend([answer, answer])
        await create(store)
        assert scripted.objects == {KEY: BODY}

    async def test_end_the_upload_in_the_end_and_nothing_is_visible(
        self, scripted: ScriptedS3, impatient: BucketStore
    ) -> None:
        scripted.upload_scripts["part"].extend([error(500, "InternalError")] * 200)
        with pytest.raises(StoreUnavailableError, match="upload_part"):
            await create(impatient)
        assert not scripted.objects
        await is_clean(scripted)

    async def test_a_part_that_is_not_answered_is_sent_again(
        self, scripted: ScriptedS3, impatient: BucketStore
    ) -> None:
        scripted.upload_scripts["part"].append(Answer(how=How.HOLD))
        await create(impatient)
        assert scripted.objects == {KEY: BODY}

    async def test_a_refusal_comes_with_advice(self, scripted: ScriptedS3, store: BucketStore) -> None:
        scripted.upload_scripts["begin"].append(error(403, "AccessDenied"))
        with pytest.raises(StoreRefusedError, match=r"create_multipart_upload .*AccessDenied.*credentials"):
            await create(store)

    async def test_a_server_that_is_not_there_is_unavailable(self) -> None:
        async with scripted_s3() as server:
            store = in_small_parts(server, IMPATIENCE)
        with pytest.raises(StoreUnavailableError):
            await create(store)
        await store.close()


class TestCompletion:
    async def test_a_taken_key_is_seen_before_anything_is_sent(
        self, scripted: ScriptedS3, store: BucketStore
    ) -> None:
        scripted.objects[KEY] = b"another's"

        asked = False

        async def chunks() -> AsyncIterator[Buffer]:
            nonlocal asked
            asked = True
            yield bytes(10)

        with pytest.raises(ObjectExistsError):
            await store.put_if_absent_streamed(KEY, chunks(), 10)
        assert not asked
        assert scripted.upload_operations() == ["mark"]

    async def test_another_that_was_faster_wins(self, scripted: ScriptedS3, store: BucketStore) -> None:
        async def while_another_creates() -> AsyncIterator[Buffer]:
            yield BODY[:1500]
            scripted.objects[KEY] = b"another's"
            yield BODY[1500:]

        with pytest.raises(ObjectExistsError):
            await store.put_if_absent_streamed(KEY, while_another_creates(), len(BODY))
        assert scripted.objects == {KEY: b"another's"}
        await is_clean(scripted)

    async def test_another_that_is_faster_at_the_very_end_wins(
        self, scripted: ScriptedS3, store: BucketStore
    ) -> None:
        scripted.upload_scripts["complete"].append(error(412, "PreconditionFailed"))
        with pytest.raises(ObjectExistsError):
            await create(store)
        await is_clean(scripted)
        assert scripted.upload_operations().count("complete") == 1

    async def test_a_conflict_is_tried_again(self, scripted: ScriptedS3, store: BucketStore) -> None:
        scripted.upload_scripts["complete"].extend([error(409, "ConditionalRequestConflict")] * 3)
        await create(store)
        assert scripted.objects == {KEY: BODY}

    async def test_a_lost_reply_does_not_hide_that_the_object_is_ours(
        self, scripted: ScriptedS3, store: BucketStore
    ) -> None:
        scripted.upload_scripts["complete"].append(Answer(how=How.DROP))
        await create(store)
        assert scripted.objects == {KEY: BODY}
        assert scripted.upload_operations()[-2:] == ["complete", "mark"]

    async def test_a_lost_request_is_made_again(self, scripted: ScriptedS3, store: BucketStore) -> None:
        scripted.upload_scripts["complete"].extend([LOST, error(500, "InternalError"), LOST])
        await create(store)
        assert scripted.objects == {KEY: BODY}

    async def test_an_error_in_an_answer_that_began_well_is_no_success(
        self, scripted: ScriptedS3, store: BucketStore
    ) -> None:
        """S3 sends 200 before it knows, and the outcome of it later."""
        body = b"<Error><Code>InternalError</Code><Message>try again</Message></Error>"
        scripted.upload_scripts["complete"].append(Answer(status=200, body=body))
        await create(store)
        assert scripted.objects == {KEY: BODY}

    @pytest.mark.parametrize(
        "second", [SAID_TWICE, error(412, "PreconditionFailed"), error(404, "NoSuchUpload")]
    )
    async def test_lost_request_does_not_claim_the_object_of_another(
        self, scripted: ScriptedS3, store: BucketStore, second: Answer
    ) -> None:
        """versitygw says yes to the second completion of an upload whenever there is an object."""
        scripted.upload_scripts["complete"].extend([LOST, second])
        scripted.upload_scripts["mark"].extend([error(404, "")] * 2)
        scripted.objects[KEY] = b"another's"
        with pytest.raises(ObjectExistsError):
            await create(store)
        assert scripted.objects == {KEY: b"another's"}
        await is_clean(scripted)

    async def test_a_yes_while_no_object_is_there_is_not_believed(
        self, scripted: ScriptedS3, store: BucketStore
    ) -> None:
        """versitygw says yes to a second completion while the first is in progress, whatever happens to that."""
        scripted.upload_scripts["complete"].extend([LOST, SAID_TWICE, SAID_TWICE])
        await create(store)
        assert scripted.objects == {KEY: BODY}
        assert scripted.upload_operations().count("complete") == 4

    async def test_unknown_outcome_is_reported_and_cannot_happen_later(
        self, scripted: ScriptedS3, impatient: BucketStore
    ) -> None:
        scripted.upload_scripts["complete"].extend([LOST] * 200)
        with pytest.raises(StoreIndeterminateError):
            await create(impatient)
        assert not scripted.objects
        await is_clean(scripted)

    async def test_a_completion_that_is_not_answered_is_looked_into(
        self, scripted: ScriptedS3, impatient: BucketStore
    ) -> None:
        scripted.upload_scripts["complete"].append(Answer(how=How.HOLD))
        await create(impatient)
        assert scripted.objects == {KEY: BODY}

    async def test_an_upload_that_another_writer_ended_creates_nothing(
        self, scripted: ScriptedS3, store: BucketStore
    ) -> None:
        scripted.upload_scripts["complete"].append(error(404, "NoSuchUpload"))
        with pytest.raises(StoreUnavailableError, match="ended by another writer"):
            await create(store)

    async def test_store_that_ignores_conditions_replaces_no_older_object(self) -> None:
        async with scripted_s3(ignores_conditions=True) as server:
            store = in_small_parts(server)
            server.upload_scripts["mark"].append(error(404, ""))
            server.objects[KEY] = b"another's"
            with pytest.raises(ObjectExistsError):
                await create(store)
            assert server.objects == {KEY: b"another's"}
            await is_clean(server)
            await store.close()


class TestEnds:
    async def test_a_caller_that_is_cancelled_leaves_nothing(
        self, scripted: ScriptedS3, store: BucketStore
    ) -> None:
        is_waiting = asyncio.Event()

        async def endless() -> AsyncIterator[Buffer]:
            yield BODY[:2100]
            is_waiting.set()
            await asyncio.Event().wait()

        creating = asyncio.create_task(store.put_if_absent_streamed(KEY, endless(), 3000))
        await asyncio.wait_for(is_waiting.wait(), PATIENCE_SEC)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        await is_clean(scripted)
        assert not scripted.objects

    async def test_an_upload_is_aborted_only_after_its_last_part_came(
        self, scripted: ScriptedS3, store: BucketStore
    ) -> None:
        """A part that comes after the abort would stay, and cost."""
        scripted.pause_sec = 0.1

        async def failing() -> AsyncIterator[Buffer]:
            yield BODY[:1000]
            await asyncio.wait_for(scripted.begun.wait(), PATIENCE_SEC)
            raise KeyError("the caller's")

        with pytest.raises(KeyError):
            await store.put_if_absent_streamed(KEY, failing(), len(BODY))
        await is_clean(scripted)
        assert scripted.upload_operations()[-2:] in (["part", "abort"], ["begin", "abort"])

    async def test_closing_gives_aborts_a_moment(self, scripted: ScriptedS3, store: BucketStore) -> None:
        with pytest.raises(ValueError, match="announced"):
            await store.put_if_absent_streamed(KEY, chunks_of(BODY), len(BODY) + 1)
        await store.close()
        assert not scripted.uploads.under_way

    async def test_an_abort_that_fails_is_logged(
        self, scripted: ScriptedS3, impatient: BucketStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        scripted.upload_scripts["abort"].append(error(403, "AccessDenied"))
        with pytest.raises(ValueError, match="announced"):
            await impatient.put_if_absent_streamed(KEY, chunks_of(BODY), len(BODY) + 1)
        await impatient.close()
        [record] = [record for record in caplog.records if "could not abort" in record.message]
        assert record.__dict__["upload"] == "upload-1"


def test_parts_grow_so_that_ten_thousand_are_enough() -> None:
    for size_bytes in (1, 65 * MIB, 10_000 * PART_BYTES, 10_000 * PART_BYTES + 1, 2**40, MAX_OBJECT_BYTES):
        part_bytes = part_size_bytes(size_bytes, PART_BYTES)
        assert PART_BYTES <= part_bytes <= 5 * 2**30
        assert -(-size_bytes // part_bytes) <= 10_000
    assert part_size_bytes(10_000 * PART_BYTES, PART_BYTES) == PART_BYTES
    assert part_size_bytes(MAX_OBJECT_BYTES, PART_BYTES) == 525 * MIB


class TestRealServer:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[S3Server]:
        with s3_server(tmp_path) as running:
            yield running

    @pytest.fixture
    async def store(self, server: S3Server) -> AsyncIterator[BucketStore]:
        opened = open_bucket(
            load_settings(server.settings), multipart_above_bytes=10 * MIB, part_bytes=5 * MIB
        )
        yield opened
        await opened.close()

    async def test_of_eight_creators_of_a_large_object_exactly_one_wins(
        self, server: S3Server, store: BucketStore
    ) -> None:
        sizes = [11 * MIB + number for number in range(8)]
        # Nobody completes before all have come to the end: the server alone can tell who is first.
        at_the_end = asyncio.Barrier(8)

        async def body(number: int) -> AsyncIterator[Buffer]:
            for start in range(0, sizes[number], MIB):
                yield bytes([number]) * min(MIB, sizes[number] - start)
            await at_the_end.wait()

        results = await asyncio.gather(
            *(store.put_if_absent_streamed(KEY, body(number), sizes[number]) for number in range(8)),
            return_exceptions=True,
        )
        [winner] = [number for number, result in enumerate(results) if result is None]
        assert all(isinstance(result, ObjectExistsError) for result in results if result is not None)
        assert await store.get(KEY) == bytes([winner]) * sizes[winner]
        await no_parts_left(server)

    async def test_object_larger_than_parts_in_flight_is_unchanged(
        self, server: S3Server, store: BucketStore
    ) -> None:
        body = os.urandom(64 * KIB)
        size_bytes = 81 * MIB + 5

        async def repeated() -> AsyncIterator[Buffer]:
            whole = memoryview(body * 16)
            for start in range(0, size_bytes, MIB):
                yield whole[: min(MIB, size_bytes - start)]

        await store.put_if_absent_streamed(KEY, repeated(), size_bytes)
        assert await store.size_bytes(KEY) == size_bytes
        content = await store.get(KEY)
        assert content == (body * (16 * 82))[:size_bytes]

    async def test_a_stream_that_fails_leaves_no_parts(self, server: S3Server, store: BucketStore) -> None:
        async def failing() -> AsyncIterator[Buffer]:
            yield bytes(6 * MIB)
            raise KeyError("the caller's")

        with pytest.raises(KeyError):
            await store.put_if_absent_streamed(KEY, failing(), 20 * MIB)
        await no_parts_left(server)
        assert [info async for info in store.list("")] == []


async def no_parts_left(server: S3Server) -> None:
    async def nothing() -> bool:
        return server.stored_files() in ([], [KEY])

    await wait_until_async(nothing, "the parts are removed")
