"""The shape of a request that every metadata store takes, checked before anything is done."""

from collections.abc import Sequence

from kafscale.metadata.store import Compare, Operation, Put

# etcd's default (`--max-txn-ops`): what fits the embedded stores fits a cluster, too.
MAX_OPERATIONS = 128


def check_transaction(
    compares: Sequence[Compare], operations: Sequence[Operation], max_operations: int
) -> None:
    """Raise `ValueError` for a transaction that is too large, names a key twice or has an illegal key.

    Raises `TypeError` for a value that is not `bytes`: a view of reused memory would change under the store.
    """
    for what, given in (("compares", compares), ("operations", operations)):
        if len(given) > max_operations:
            raise ValueError(f"{len(given)} {what} in one transaction; at most {max_operations} are legal")
    named: set[str] = set()
    for operation in operations:
        if operation.key in named:
            raise ValueError(f"key {operation.key!r} is named twice among the operations of a transaction")
        if not operation.key:
            raise ValueError("the empty key is not legal")
        # A lone surrogate has no UTF-8 and is a ValueError here rather than an error of the backend's.
        operation.key.encode()
        named.add(operation.key)
        if isinstance(operation, Put) and type(operation.value) is not bytes:
            raise TypeError(f"the value of key {operation.key!r} is of {type(operation.value)}, not of bytes")


def check_ttl(ttl_sec: int) -> None:
    """Raise `ValueError` unless a lease can last that long."""
    if ttl_sec < 1:
        raise ValueError(f"a lease of {ttl_sec} seconds; at least 1 is legal")
