"""`make test-bytecode`: collect every test once, on two cores. What a new checkout's tests import is compiled then.

Otherwise each of the processes of `make test` would compile it, and rewrite the assertions. What is wrong with a test
shows when it runs: the exit status says nothing.
"""

import subprocess
import sys

from tests.schedule import entries, halves

COLLECT = (sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:randomly")


def main() -> None:
    """Collect both halves side by side."""
    started = [subprocess.Popen([*COLLECT, *paths], stdout=subprocess.DEVNULL) for paths in halves(entries())]
    for process in started:
        process.wait()


if __name__ == "__main__":
    main()
