"""The meaning of an error of etcd for its request: done or not, and what to do next.

Sure to have been refused before it was proposed or applied are only the answers listed here, each read in etcd's
server (3.4 to 3.7). Everything else is unknown, among it two that look sure: "database space exceeded" is also
answered after a transaction was applied, and "server stopped" while one was in flight.
"""

from enum import Enum
from typing import Final

import grpc


class Verdict(Enum):
    """The outcome of a failed request, as far as it is known."""

    REFUSED = "not done, and no endpoint will do it"
    LOGIN = "not done: the token is not valid (any more)"
    BUSY = "not done, the same endpoint may do it later"
    ELSEWHERE = "not done, another endpoint may do it"
    UNKNOWN = "may have been done"


LEASE_NOT_FOUND: Final = "etcdserver: requested lease not found"
COMPACTED: Final = "etcdserver: mvcc: required revision has been compacted"
TOO_LARGE: Final = "etcdserver: request is too large"
# gRPC's own limit, 512 KiB above etcd's: a request that is larger still never reaches etcd's.
_TOO_LARGE_FOR_GRPC: Final = "received message larger than max"
PERMISSION_DENIED: Final = "etcdserver: permission denied"
USER_NEEDED: Final = "etcdserver: user name is empty"
LOGIN_FAILED: Final = "etcdserver: authentication failed, invalid user ID or password"
AUTH_NOT_ENABLED: Final = "etcdserver: authentication is not enabled"
NO_SPACE: Final = "etcdserver: mvcc: database space exceeded"

_VERDICTS: Final = {
    LEASE_NOT_FOUND: Verdict.REFUSED,
    COMPACTED: Verdict.REFUSED,
    TOO_LARGE: Verdict.REFUSED,
    PERMISSION_DENIED: Verdict.REFUSED,
    LOGIN_FAILED: Verdict.REFUSED,
    AUTH_NOT_ENABLED: Verdict.REFUSED,
    "etcdserver: too many operations in txn request": Verdict.REFUSED,
    "etcdserver: duplicate key given in txn request": Verdict.REFUSED,
    "etcdserver: too large lease TTL": Verdict.REFUSED,
    USER_NEEDED: Verdict.LOGIN,
    "etcdserver: invalid auth token": Verdict.LOGIN,
    "etcdserver: revision of auth store is old": Verdict.LOGIN,
    "auth: revision in header is old": Verdict.LOGIN,
    "etcdserver: too many requests": Verdict.BUSY,
    "etcdserver: no leader": Verdict.ELSEWHERE,
    "etcdserver: not capable": Verdict.ELSEWHERE,
    "etcdserver: rpc not supported for learner": Verdict.ELSEWHERE,
}


def verdict_of(code: grpc.StatusCode, details: str) -> Verdict:
    """The verdict for an error with this code and text."""
    if is_too_large(code, details):
        return Verdict.REFUSED
    return _VERDICTS.get(details, Verdict.UNKNOWN)


def is_too_large(code: grpc.StatusCode, details: str) -> bool:
    """True if the request was refused for its size."""
    too_large_for_grpc = code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE_FOR_GRPC in details
    return details == TOO_LARGE or too_large_for_grpc
