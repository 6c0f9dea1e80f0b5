"""Options of registry, routes and dead letters that are not legal: refused before Spark starts, without secrets."""

import pytest
from click.testing import CliRunner

from spark_jobs.export import main

SECRET = "s3cret-of-the-registry"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--schema-subject", "x"), "of no use without --schema-registry"),
        (("--schema-registry-token", "env:HOME"), "of no use without --schema-registry"),
        (
            ("--schema-registry", "http://r", "--schema-registry-token", SECRET),
            "--schema-registry-token is not legal: it must be env:VARIABLE",
        ),
        (
            ("--schema-registry", "http://r", "--schema-registry-user-info", "env:NOT_SET_ANYWHERE"),
            "names the variable 'NOT_SET_ANYWHERE', which is not set",
        ),
        (("--schema-registry", "http://r", "--schema-registry-timeout", "0"), "is not in the range"),
        (("--schema-registry", "http://r", "--on-unknown-schema", "skip"), "is not one of"),
        (("--route", "a=l.d.t"), "--route is of no use without --route-by"),
        (("--route-by", "type"), "--route-by is of no use without --route"),
        (("--route-by", "subject", "--route", "a=l.d.t"), "it must be type, header:NAME, or field:PATH"),
        (("--max-dead-letters", "lots"), "--max-dead-letters 'lots' is not legal"),
        (("--replay-dead-letters", "--continuous"), "--replay-dead-letters is of no use with"),
        (("--replay-dead-letters", "--max-dead-letters", "1"), "--replay-dead-letters is of no use with"),
    ],
)
def test_options_that_are_not_legal_are_refused(options: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(main, ["--topic", "orders", "--table", "local.db.orders", *options])
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.output.split())
    assert SECRET not in done.output
