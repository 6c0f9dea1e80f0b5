"""Java for Spark, on machines without one: `python -m tests.support.java_install`."""

import sys

from kafscale.errors import StartupError
from spark_jobs.jar_set import OLDEST_JAVA, check_java
from tests.support.installing import CannotInstallError, ensure_command


def main() -> int:
    """Install Java from the machine's packages unless a new enough one exists."""
    try:
        try:
            check_java()
        except StartupError:
            print(
                f"java: {ensure_command('java', package=f'openjdk-{OLDEST_JAVA}-jre-headless')}", flush=True
            )
            check_java()
    except (StartupError, CannotInstallError) as error:
        print(f"kafscale: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
