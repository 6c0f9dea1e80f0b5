"""Ends the etcd that these tests share."""

from tests.support.etcd_server import shared_etcd_ends

__all__ = ["shared_etcd_ends"]
