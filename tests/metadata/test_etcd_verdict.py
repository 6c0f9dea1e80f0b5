"""Which errors of etcd are sure to leave nothing done."""

import grpc
import pytest

from kafscale.metadata.etcd.verdict import Verdict, is_too_large, verdict_of

CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (CODE.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        (CODE.UNAVAILABLE, "Socket closed"),
        (CODE.UNAVAILABLE, "recvmsg:Connection reset by peer"),
        (CODE.UNAVAILABLE, "etcdserver: request timed out"),
        (CODE.UNAVAILABLE, "etcdserver: request timed out, possibly due to previous leader failure"),
        (CODE.UNAVAILABLE, "etcdserver: request timed out, possibly due to connection lost"),
        (CODE.UNAVAILABLE, "etcdserver: server stopped"),
        (CODE.UNAVAILABLE, "etcdserver: leader changed"),
        (CODE.DATA_LOSS, "etcdserver: corrupt cluster"),
        # Answered after it was applied, when that used up the quota.
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
        (CODE.UNKNOWN, "raft proposal dropped"),
        (CODE.CANCELLED, "context canceled"),
        (CODE.INTERNAL, ""),
    ],
)
def test_what_is_not_sure_is_unknown(code: grpc.StatusCode, details: str) -> None:
    assert verdict_of(code, details) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("code", "details", "verdict"),
    [
        (CODE.UNAVAILABLE, "etcdserver: no leader", Verdict.ELSEWHERE),
        (CODE.UNAVAILABLE, "etcdserver: rpc not supported for learner", Verdict.ELSEWHERE),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: too many requests", Verdict.BUSY),
        (CODE.UNAUTHENTICATED, "etcdserver: invalid auth token", Verdict.LOGIN),
        (CODE.INVALID_ARGUMENT, "etcdserver: user name is empty", Verdict.LOGIN),
        (CODE.UNKNOWN, "auth: revision in header is old", Verdict.LOGIN),
        (CODE.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", Verdict.LOGIN),
        (CODE.NOT_FOUND, "etcdserver: requested lease not found", Verdict.REFUSED),
        (CODE.PERMISSION_DENIED, "etcdserver: permission denied", Verdict.REFUSED),
    ],
)
def test_what_is_sure(code: grpc.StatusCode, details: str, verdict: Verdict) -> None:
    assert verdict_of(code, details) is verdict


@pytest.mark.parametrize(
    ("code", "details", "too_large"),
    [
        (CODE.INVALID_ARGUMENT, "etcdserver: request is too large", True),
        (CODE.RESOURCE_EXHAUSTED, "grpc: received message larger than max (3000042 vs. 2097152)", True),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: too many requests", False),
        (CODE.UNAVAILABLE, "Socket closed", False),
    ],
)
def test_what_is_too_large(code: grpc.StatusCode, details: str, too_large: bool) -> None:
    assert is_too_large(code, details) is too_large
    if too_large:
        assert verdict_of(code, details) is Verdict.REFUSED
