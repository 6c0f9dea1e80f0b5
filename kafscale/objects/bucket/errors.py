"""The outcome behind an error of the object store library: done, not done or not known, and a retry or none.

The library (obstore, over Rust's object_store) has few kinds of exceptions, but each of their messages ends
with the whole error in Rust's debug format: the HTTP status, the store's answer, the kind of transport error.
Whatever cannot be read there counts as not known, which is always safe to say.
"""

import html
import re
from dataclasses import dataclass
from enum import Enum, auto

from obstore.exceptions import BaseError

# All that the library raises for a failed request; anything else is a defect of ours.
LIBRARY_ERRORS = (BaseError, OSError, NotImplementedError)

_DEBUG = "\n\nDebug source:\n"
_STATUS = re.compile(r"inner: (?:Status|Response) \{\s+(?:body: .*\s+)?status: (\d{3}),")
# It was never connected: refused, no such name, no way there, timed out on the way, no TLS.
_NO_CONNECTION = re.compile(r"HttpError \{\s+kind: Connect,|legacy::Error\(\s+Connect,")
_CUT_OFF = re.compile(r"HttpError \{\s+kind: (?:Request|Interrupted|Unknown),")
_BAD_CERTIFICATE = "InvalidCertificate("
_REASON = re.compile(r"(?:message|error): \"([^\"]{1,200})\"|\(\s+(\w+),?\s+\)")
_REDIRECT = "inner: BareRedirect"
_REQUEST = re.compile(r"method: (\w+),\s+uri: Some\(\s*(\S+?),?\s*\),")
_DELETION = re.compile(r"source: DeleteFailed \{\s+path: .*\s+code: \"(\w+)\",")
_CODE = re.compile(r"<Code>([\w.]{1,60})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})")
_METADATA_SERVICE = "http://169.254.169.254/"

_NO_SUCH_OBJECT = ("NoSuchKey", "BlobNotFound")
_NO_SUCH_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_TAKEN = ("BlobAlreadyExists",)  # Azure; the others answer 412
# Answers with status 400 that speak of this one transfer, not of the request: it broke, stalled or was damaged.
_BROKEN_TRANSFER = ("RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentChecksumMismatch")
_WRONG_CREDENTIALS = (
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "RequestTimeTooSkewed",
)


class Outcome(Enum):
    """The outcome of a request that failed."""

    NOT_FOUND = auto()  # no such object
    EXISTS = auto()  # the key is taken
    PAST_END = auto()  # the range starts where the object has ended
    BUSY = auto()  # nothing was done; another attempt may succeed
    REFUSED = auto()  # nothing was done, and another attempt would fare no better
    UNKNOWN = auto()  # it may have been done


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed request. `text`: for people, in one line."""

    outcome: Outcome
    text: str


def classify_answer(request: str, status: int, code: str, message: str) -> Failure:
    """The failure in an answer of S3 that did not come through the library."""
    outcome = _outcome_of_answer(status, code)
    told = f"{request}: {status} {': '.join(part for part in (code, message.rstrip('.')) if part)}".strip()
    advice = _advice(status, code, "") if outcome is Outcome.REFUSED else ""
    return Failure(outcome=outcome, text=f"{told}: {advice}" if advice else told)


def is_cut_off(error: Exception) -> bool:
    """True if the connection broke in the middle of the request, or in place of its answer."""
    debug = str(error).rpartition(_DEBUG)[2]
    return _CUT_OFF.search(debug) is not None and _NO_CONNECTION.search(debug) is None


def classify(error: Exception) -> Failure:
    """The failure behind the library's error."""
    said, _, debug = str(error).rpartition(_DEBUG)
    status_match = _STATUS.search(debug)
    status = int(status_match[1]) if status_match else 301 if _REDIRECT in debug else None
    code_match = _CODE.search(debug) if status is not None else _DELETION.search(debug)
    code = code_match[1] if code_match else ""
    request = _REQUEST.search(debug)
    method, url = (request[1], request[2]) if request else ("", "")
    if url.startswith(_METADATA_SERVICE):
        # Credentials are fetched before the request is made.
        outcome, code = Outcome.REFUSED, "NoCredentials"
    elif status is not None:
        outcome = _outcome_of_answer(status, code)
    else:
        outcome = _outcome_without_answer(error, code, debug)
    told = _told(said or str(error), status, code, debug, f"{method} {url}".strip())
    advice = _advice(status, code, debug) if outcome is Outcome.REFUSED else ""
    return Failure(outcome=outcome, text=f"{told}: {advice}" if advice else told)


def _outcome_of_answer(status: int, code: str) -> Outcome:
    if status == 404:
        # Any other 404, or one without a code, does not speak of the object: the bucket, the user or the server
        # is not the one that is meant, and its objects must not count as deleted.
        return Outcome.NOT_FOUND if code in _NO_SUCH_OBJECT else Outcome.REFUSED
    if status in (304, 412) or code in _TAKEN:
        return Outcome.EXISTS
    if status == 416:
        return Outcome.PAST_END
    # 409: a conflicting request is in progress (S3's ConditionalRequestConflict), the key is not taken for that.
    # 503 without SlowDown may be a proxy's, which had passed the request on.
    if status in (409, 429) or code == "SlowDown" or (status == 400 and code in _BROKEN_TRANSFER):
        return Outcome.BUSY
    return Outcome.UNKNOWN if (status >= 500 and status != 501) or status in (200, 408) else Outcome.REFUSED


def _outcome_without_answer(error: Exception, code: str, debug: str) -> Outcome:
    if isinstance(error, NotImplementedError) or _BAD_CERTIFICATE in debug:
        return Outcome.REFUSED
    if code == "AccessDenied":
        return Outcome.REFUSED  # one of many deletions, which all ask for the same right
    # Only of a connection that was never made is it known that no request went over it.
    return Outcome.BUSY if _NO_CONNECTION.search(debug) else Outcome.UNKNOWN


def _told(said: str, status: int | None, code: str, debug: str, request: str) -> str:
    if status is None:
        reason = _REASON.search(debug)
        told = ": ".join(
            part for part in (" ".join(said.split()), *(reason.groups() if reason else ())) if part
        )
        return told[:600]
    message = _MESSAGE.search(debug)
    what = html.unescape(message[1]).rstrip(".") if message else ""
    return f"{request}: {status} {': '.join(part for part in (code, what) if part)}".strip()


def _advice(status: int | None, code: str, debug: str) -> str:
    """The advice for a refusal of the store."""
    if _BAD_CERTIFICATE in debug:
        return (
            "the certificate of KAFSCALE_S3_ENDPOINT is not trusted or not for that name; SSL_CERT_FILE names "
            "the authorities (PEM) to trust"
        )
    if code in _NO_SUCH_BUCKET:
        return "create the bucket, or correct KAFSCALE_S3_BUCKET (and _ENDPOINT, _REGION)"
    if code == "NoCredentials":
        return (
            "no credentials: set KAFSCALE_S3_ACCESS_KEY and KAFSCALE_S3_SECRET_KEY, or run where the platform "
            "gives some (environment, web identity, container, instance)"
        )
    if status in (401, 403) or code in _WRONG_CREDENTIALS:
        return (
            "check the credentials (KAFSCALE_S3_ACCESS_KEY, _SECRET_KEY, _SESSION_TOKEN or the platform's), the "
            "machine's clock, and that they may get, put, delete and list objects of the bucket and use its key"
        )
    if status in (301, 307, 308):
        return (
            "the bucket is in another region or behind another address: correct KAFSCALE_S3_REGION, _ENDPOINT"
        )
    return "check KAFSCALE_S3_ENDPOINT, _REGION, _PATH_STYLE, _ACCESS_KEY, and that the store can do what was asked"
