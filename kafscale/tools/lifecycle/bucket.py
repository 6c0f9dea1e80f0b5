"""A bucket's lifecycle configuration, over boto3: read as a whole and replaced as a whole, as S3 has it.

The object store's own client (obstore) has no operations on buckets. Everything here blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from kafscale.errors import SettingError, StoreRefusedError, StoreUnavailableError
from kafscale.settings.broker import Settings
from kafscale.tools.lifecycle.bucket_name import s3_bucket_name
from kafscale.tools.lifecycle.rule_text import S3Rule

# The platform's own settings override it, as for the object store's client.
DEFAULT_REGION: Final = "us-east-1"

_CONNECT_TIMEOUT_SEC = 5
_READ_TIMEOUT_SEC = 30
_ATTEMPTS = 3
_MOST_SAID = 200
_NONE_YET = "NoSuchLifecycleConfiguration"
_NOT_OFFERED = ("NotImplemented", "MethodNotAllowed", "UnsupportedOperation", "XNotImplemented")
_ADVICE = {
    "NoSuchBucket": "create the bucket, or correct KAFSCALE_S3_BUCKET (and _ENDPOINT, _REGION)",
    "AccessDenied": "the credentials need s3:GetLifecycleConfiguration and s3:PutLifecycleConfiguration",
}
_OTHER_ADVICE = "check KAFSCALE_S3_ENDPOINT, _REGION, _PATH_STYLE and the credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketConfiguration:
    """The rules as S3 has them, and the setting beside them that a replacement must repeat to keep."""

    rules: tuple[S3Rule, ...]
    minimum_size: str | None = None


class BucketLifecycle:
    """The lifecycle configuration of the bucket that the settings name.

    Raises `SettingError` when they name none that has S3's.
    """

    def __init__(self, settings: Settings) -> None:
        self._bucket = s3_bucket_name(settings)
        try:
            self._client = _client(settings)
        except (BotoCoreError, ValueError) as problem:
            raise SettingError(
                f"KAFSCALE_S3_BUCKET={settings.s3_bucket} cannot be used: {problem}"
            ) from problem

    def read(self) -> BucketConfiguration:
        """The rules that the bucket has. Raises `StoreRefusedError`, `StoreUnavailableError`."""
        try:
            found = self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket)
        except ClientError as problem:
            if _code(problem) == _NONE_YET:
                return BucketConfiguration(rules=())
            raise _refused(problem, "read") from problem
        except BotoCoreError as problem:
            raise StoreUnavailableError(f"the object store does not answer: {problem}") from problem
        return BucketConfiguration(
            rules=tuple(found.get("Rules", ())),
            minimum_size=found.get("TransitionDefaultMinimumObjectSize"),
        )

    def replace(self, rules: Sequence[S3Rule], before: BucketConfiguration) -> None:
        """Give the bucket these rules (one or more) instead of those that it had `before`.

        Raises `StoreRefusedError`, `StoreUnavailableError`; after the latter the bucket may have them.
        """
        more = {}
        if before.minimum_size is not None:
            more["TransitionDefaultMinimumObjectSize"] = before.minimum_size
        try:
            self._client.put_bucket_lifecycle_configuration(
                Bucket=self._bucket, LifecycleConfiguration={"Rules": list(rules)}, **more
            )
        except ClientError as problem:
            raise _refused(problem, "change") from problem
        except BotoCoreError as problem:
            raise StoreUnavailableError(f"the object store does not answer: {problem}") from problem

    def close(self) -> None:
        """End the client's connections."""
        self._client.close()


def _client(settings: Settings) -> Any:
    session = boto3.session.Session(
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=settings.s3_secret_key,
        aws_session_token=settings.s3_session_token,
    )
    path_style = settings.s3_path_style and settings.s3_endpoint is not None
    return session.client(
        "s3",
        region_name=settings.s3_region or session.region_name or DEFAULT_REGION,
        endpoint_url=settings.s3_endpoint,
        config=Config(
            connect_timeout=_CONNECT_TIMEOUT_SEC,
            read_timeout=_READ_TIMEOUT_SEC,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            s3={"addressing_style": "path" if path_style else "virtual"},
        ),
    )


def _code(problem: ClientError) -> str:
    return cast(str, problem.response.get("Error", {}).get("Code", ""))


def _refused(problem: ClientError, verb: str) -> StoreRefusedError | StoreUnavailableError:
    code = _code(problem)
    status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _NOT_OFFERED or status in (405, 501):
        # Not with the server's text: it speaks of headers or methods, and there is nothing to correct.
        return StoreRefusedError(
            f"the object store has no lifecycle rules (it answers {status} {code}); the brokers expire records "
            "without them"
        )
    said = " ".join(problem.response.get("Error", {}).get("Message", "").split())[:_MOST_SAID]
    told = f"the object store refused to {verb} the bucket's lifecycle rules: {status} {code}: {said}".rstrip(
        ": "
    )
    if status >= 500:
        return StoreUnavailableError(told)
    return StoreRefusedError(f"{told}: {_ADVICE.get(code, _OTHER_ADVICE)}")
