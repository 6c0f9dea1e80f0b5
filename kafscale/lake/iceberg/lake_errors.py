"""The border to pyiceberg: its failures, and those of its file systems and databases, become `LakeError`."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyiceberg.exceptions
from sqlalchemy.exc import SQLAlchemyError

from kafscale.errors import KafscaleError
from kafscale.masking import without_credentials

_OF_ICEBERG: Final = tuple(
    found
    for _, found in inspect.getmembers(pyiceberg.exceptions, inspect.isclass)
    if issubclass(found, Exception)
)


def _of_thrift() -> tuple[type[Exception], ...]:
    """The errors of a Hive metastore, where its client is installed."""
    try:
        from thrift.Thrift import TException
    except ImportError:
        return ()
    return (TException,)


CATALOG_ERRORS: Final = (
    *_OF_ICEBERG, *_of_thrift(), SQLAlchemyError, pa.ArrowException, OSError, ValueError,
)  # fmt: skip
"""Raised by catalogs, their databases and the files of tables; most of them have no common base."""


class LakeError(KafscaleError):
    """A catalog, or the files of a table, did not do what was asked."""


@contextlib.contextmanager
def lake_errors(doing: str) -> Iterator[None]:
    """`doing`: what failed, as in "cannot open the catalog local". Errors of Kafscale's own pass."""
    try:
        yield
    except KafscaleError:
        raise
    except CATALOG_ERRORS as problem:
        raise LakeError(f"{doing}: {reason_of(problem)}") from problem


def reason_of(problem: BaseException) -> str:
    """One line, without credentials."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    # SQLAlchemy's text goes on with the statement and a link; a REST catalog's with the server's stack.
    return without_credentials(f"{lines[0]} ({type(problem).__name__})" if lines else type(problem).__name__)
