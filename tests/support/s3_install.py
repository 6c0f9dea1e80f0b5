"""The S3 server of the tests: versitygw, built with Go into `.tools/versitygw`.

Its conditional writes are atomic (raced, no two creators won), which several small S3 servers' are not.
"""

import shutil

from tests.support import tool_cache
from tests.support.installing import TOOLS, ensure_command, run_command

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW = TOOLS / "versitygw"
STAMP = TOOLS / "versitygw.version"


def s3_server_missing() -> str | None:
    """The reason why tests against a real S3 server cannot run here, or None."""
    if _is_current():
        return None
    return (
        f"versitygw {VERSION} is not built in .tools/versitygw (needs Go; run `python -m tests.compat.tools`)"
    )


def install_s3_server() -> str:
    """Build versitygw through the Go module proxy. Returns a summary. Raises `CannotInstallError`."""
    if _is_current():
        return "there already"
    built_from = f"{MODULE}@{VERSION}"
    if tool_cache.take([VERSITYGW.name], built_from, TOOLS):
        STAMP.write_text(VERSION)
        return "copied from the cache"
    ensure_command("go", package="golang-go")
    staging = TOOLS / "versitygw.new"
    shutil.rmtree(staging, ignore_errors=True)
    # Without symbols the build takes less time and a third of the space less.
    run_command("go", "install", "-ldflags=-s -w", built_from, environment={"GOBIN": str(staging)})
    (staging / VERSITYGW.name).replace(VERSITYGW)
    shutil.rmtree(staging)
    STAMP.write_text(VERSION)
    tool_cache.keep([VERSITYGW.name], built_from, TOOLS)
    return "built with Go"


def _is_current() -> bool:
    return VERSITYGW.exists() and STAMP.exists() and STAMP.read_text() == VERSION
