"""Iceberg's jars, which PySpark does not include: `python -m spark_jobs.jars` fetches them, `--list` lists them.

Their coordinates are in pom.xml beside this file only. Without Maven a session leaves them to Spark itself
(`spark.jars.packages`).
"""

import sys

import click

from kafscale.errors import StartupError
from kafscale.masking import without_credentials
from spark_jobs.iceberg_jars import ICEBERG as ICEBERG
from spark_jobs.jar_set import MavenMissingError, check_java


def jar_configuration() -> dict[str, str]:
    """Spark's configuration that adds Iceberg: the fetched jars or, without them, their coordinates."""
    fetched = ICEBERG.paths()
    if fetched:
        return {"spark.jars": ",".join(map(str, fetched))}
    return {"spark.jars.packages": ",".join(ICEBERG.coordinates())}


@click.command()
@click.option(
    "--list",
    "as_list",
    is_flag=True,
    help="Print the jars' paths with commas between, for spark-submit --jars.",
)
@click.option(
    "--packages",
    is_flag=True,
    help="Print their coordinates with commas between, for spark-submit --packages.",
)
def main(as_list: bool, packages: bool) -> None:
    """Fetch the jars of the lake export with Maven, unless they are there.

    Exit status: 0 done, also where there is no Maven (Spark then fetches them itself when it starts); 1 there is
    no Java that Spark could run with, or Maven failed.
    """
    try:
        if packages:
            click.echo(",".join(ICEBERG.coordinates()))
            return
        check_java()
        try:
            done = ICEBERG.fetch()
        except MavenMissingError as missing:
            if as_list:
                raise
            done = f"{missing}; Spark will fetch them itself when it first starts"
        if as_list:
            click.echo(",".join(map(str, ICEBERG.paths())))
        else:
            click.echo(f"Iceberg's jars: {done}")
    except StartupError as error:
        click.echo(f"kafscale: {without_credentials(str(error))}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
