"""`make test-bytecode`: what a new checkout's tests import is compiled once, or taken from the checkout before.

Otherwise each of the processes of `make test` would compile it, and rewrite the assertions. To compile is to collect
every test, on two cores. What is wrong with a test shows when it runs: the exit status says nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests import kept_bytecode
from tests.schedule import entries, halves
from tests.support.tool_cache import cache_folder

CHECKOUT = Path(__file__).resolve().parents[1]
COLLECT = (sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:randomly")
FEW = 200  # so many changed modules are compiled where they are imported


def main() -> None:
    """Restore what was kept; collect both halves side by side if that was little, and keep what came of it."""
    archive = kept_bytecode.archive(cache_folder())
    restored, others = kept_bytecode.restore(CHECKOUT, archive)
    print(f"bytecode of {restored} modules is that of another checkout, {others} have changed", flush=True)
    if restored and others <= FEW:
        return
    writing = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = [
        subprocess.Popen([*COLLECT, *paths], stdout=subprocess.DEVNULL, env=writing)
        for paths in halves(entries())
    ]
    statuses = [process.wait() for process in started]
    if not any(statuses):
        # An archive is taken for complete: what it lacks, each process of the next checkout would compile.
        kept_bytecode.keep(CHECKOUT, archive)


if __name__ == "__main__":
    main()
