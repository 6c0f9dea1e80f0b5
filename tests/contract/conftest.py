"""Ends the etcd that the contract's tests share."""

from tests.support.etcd_server import shared_etcd_ends

__all__ = ["shared_etcd_ends"]
