"""`kafscale operator`: manages clusters and topics in Kubernetes."""

import sys

import click

from kafscale.errors import KafscaleError
from kafscale.extras import MissingExtraError, extra_needed
from kafscale.masking import without_credentials
from kafscale.ops.logs import configure_logging
from kafscale.settings.broker import LogFormat, LogLevel

EXIT_STARTUP = 1
_PAGES_PORT = 8080


@click.command()
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    envvar="KAFSCALE_OPERATOR_NAMESPACES",
    metavar="NAME",
    help="Watch only this namespace. May be repeated; default: all namespaces.",
)
@click.option(
    "--image",
    required=True,
    envvar="KAFSCALE_OPERATOR_IMAGE",
    help="The brokers' image, where a cluster names none.",
)
@click.option(
    "--etcd-image",
    default="quay.io/coreos/etcd:v3.6.6",
    show_default=True,
    envvar="KAFSCALE_OPERATOR_ETCD_IMAGE",
    help="The image of managed etcd members, where a cluster names none.",
)
@click.option(
    "--own-role-bucket",
    "own_role_buckets",
    multiple=True,
    envvar="KAFSCALE_OPERATOR_OWN_ROLE_BUCKETS",
    metavar="BUCKET",
    help="A bucket that backups may use with the operator's own role: a name for S3, or s3://, gs:// or az:// with a "
    "name. May be repeated; for any other bucket a cluster must name a Secret.",
)
@click.option(
    "--lease-name",
    default="kafscale-operator",
    show_default=True,
    envvar="KAFSCALE_OPERATOR_LEASE",
    help="The Lease that elects the leader among several operators.",
)
@click.option(
    "--lease-namespace",
    default=None,
    envvar="KAFSCALE_OPERATOR_LEASE_NAMESPACE",
    help="The Lease's namespace; default: the operator's own.",
)
@click.option(
    "--metrics-addr",
    default=f":{_PAGES_PORT}",
    show_default=True,
    envvar="KAFSCALE_OPERATOR_METRICS_ADDR",
    metavar="HOST:PORT",
    help="Address of /metrics, /healthz and /readyz; empty: not served.",
)
@click.option(
    "--log-level",
    type=click.Choice([level.value for level in LogLevel]),
    default=LogLevel.INFO.value,
    show_default=True,
    envvar="KAFSCALE_OPERATOR_LOG_LEVEL",
    help="The lowest level that is logged.",
)
@click.option(
    "--log-format",
    type=click.Choice([form.value for form in LogFormat]),
    default=LogFormat.TEXT.value,
    show_default=True,
    envvar="KAFSCALE_OPERATOR_LOG_FORMAT",
    help="Log lines for people or for programs.",
)
def operator(
    namespaces: tuple[str, ...],
    image: str,
    etcd_image: str,
    own_role_buckets: tuple[str, ...],
    lease_name: str,
    lease_namespace: str | None,
    metrics_addr: str,
    log_level: str,
    log_format: str,
) -> None:
    """Manage KafscaleClusters and KafscaleTopics until stopped.

    Several may run: one leads, the others stand by. Exit status: 0 stopped by a signal, 1 cannot work or has lost
    leadership, 2 an option is invalid.
    """
    configure_logging(LogLevel(log_level), LogFormat(log_format))
    try:
        # Imported here: a broker's installation has no kopf.
        with extra_needed("operator", "kafscale operator"):
            from kafscale.operator.main import Options, run
    except MissingExtraError as error:
        click.echo(f"kafscale: {error}", err=True)
        sys.exit(EXIT_STARTUP)
    options = Options(
        image=image,
        etcd_image=etcd_image,
        namespaces=namespaces,
        own_role_buckets=own_role_buckets,
        lease_name=lease_name,
        lease_namespace=lease_namespace,
        metrics_addr=_address(metrics_addr),
    )
    try:
        status = run(options)
    except KafscaleError as error:
        click.echo(f"kafscale: {without_credentials(str(error))}", err=True)
        sys.exit(EXIT_STARTUP)
    sys.exit(status)


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is no HOST:PORT", param_hint="--metrics-addr")
    return host.strip("[]"), int(port)
