"""The `kafscale` command."""

import os
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafscale.commands.cat_options import cat
from kafscale.commands.cost_options import cost
from kafscale.commands.export_command import export
from kafscale.commands.reconcile_command import reconcile
from kafscale.commands.running import (
    EXIT_SETTINGS,
    EXIT_STARTUP,
    configure_command_logging,
    echo_error,
    fail,
    no_garbage,
    run_broker,
    with_settings,
)
from kafscale.commands.users import users
from kafscale.errors import KafscaleError, SettingError
from kafscale.operator.operator_command import operator
from kafscale.settings.broker import SETTINGS, SettingRow, Settings, load_settings

if TYPE_CHECKING:
    from kafscale.commands.backup import BackupCommand

_DAYS = click.IntRange(1, 2**31 - 1)


def _setting_help(row: SettingRow) -> str:
    indented = {"width": 78, "initial_indent": "    ", "subsequent_indent": "    "}
    lines = [f"{row.variable}  [default: {row.default}]"]
    for text in (row.documentation, f"Legal: {row.kind.legal}."):
        lines += textwrap.wrap(text, **indented)  # type: ignore[arg-type]
    return "\b\n" + "\n".join(lines)


def serve_help() -> str:
    """The text of `kafscale serve --help`: every setting with its default and what is legal."""
    return "\n\n".join(
        [
            "Start a broker. It takes no options: settings come from the environment.",
            "Sizes are bytes and may carry kB, MB, GB (powers of 1000) or KiB, MiB, GiB (powers of 1024).",
            *(_setting_help(row) for row in SETTINGS),
        ]
    )


@click.group()
@click.version_option(version("kafscale"), prog_name="kafscale", message="%(prog)s %(version)s")
def main() -> None:
    """A Kafka-wire-compatible broker that keeps its records in an object store."""


main.add_command(cat)
main.add_command(operator)
main.add_command(cost)
main.add_command(export)
main.add_command(reconcile)
main.add_command(users)


@main.command(help=serve_help())
def serve() -> None:
    """Run the broker until a signal stops it, and exit with its status."""

    def start(settings: Settings) -> int:
        # Imported here so that `--help` and a bad setting answer without loading the broker.
        with no_garbage():
            from kafscale.broker.app import run

        return run(settings)

    run_broker(start)


@main.command()
@click.option(
    "--service-account",
    type=click.Path(path_type=Path),
    default=Path("/var/run/secrets/kubernetes.io/serviceaccount"),
    metavar="FOLDER",
    show_default=True,
    help="Where the pod's token and the API server's certificate authority are.",
)
def pod(service_account: Path) -> None:
    """Start a broker in a pod of Kubernetes, which is asked first where the broker is.

    It is `kafscale serve`, with settings that only Kubernetes knows. These variables say what to ask for; what the
    settings name already is not asked for:

    \b
    RACK_LABEL        the node's label that names its zone: KAFSCALE_RACK
    EXTERNAL_SERVICE  the broker's own service of type LoadBalancer or NodePort:
                      KAFSCALE_EXTERNAL_HOST and KAFSCALE_EXTERNAL_PORT
    POD_NAMESPACE     the pod's namespace
    NODE_NAME         the node that the pod runs on

    The broker waits until its address outside is known; a zone that cannot be had is done without after 30 s.
    Exit status: as of `kafscale serve`.
    """

    def start(settings: Settings) -> int:
        from kafscale.operator.pods.command import preparation

        prepare = preparation(os.environ, service_account)
        with no_garbage():
            from kafscale.broker.app import run

        return run(settings, prepare)

    run_broker(start)


@main.command()
@click.option("--apply", is_flag=True, help="Write what the plan says; without it nothing is written.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic. May be repeated.")
@click.option("--skip-damaged", is_flag=True, help="Rebuild without the segments that are damaged.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A config for every topic that is rebuilt, such as retention.ms=-1. May be repeated.",
)
@click.option(
    "--backup",
    metavar="KEY|newest",
    help="A snapshot of the metadata store: what is not in the bucket comes from there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")
def recover(
    apply: bool,
    topics: tuple[str, ...],
    skip_damaged: bool,
    configs: tuple[str, ...],
    backup: str | None,
    as_json: bool,
) -> None:
    """Rebuild a lost metadata store from the bucket: print the plan, or carry it out.

    The stores are those that the broker's settings name. Stop every broker first. docs/recover.md says what
    comes back and what does not. Exit status: 0 done, 1 a store failed, 2 a setting or an option is not
    legal, 3 refused.
    """
    # Imported here so that `--help` and a bad setting answer without loading the stores.
    from kafscale.commands.recover import OptionError, RecoverOptions, check_options, run

    try:
        settings = load_settings(os.environ)
        options = RecoverOptions(
            apply=apply,
            topics=topics,
            skip_damaged=skip_damaged,
            as_json=as_json,
            configs=dict(_pair(config) for config in configs),
            backup=backup,
        )
        check_options(options)
    except (SettingError, OptionError) as error:
        fail(error, EXIT_SETTINGS)
    configure_command_logging(settings)
    try:
        status = run(settings, options, click.echo, lambda line: click.echo(f"kafscale: {line}", err=True))
    except (SettingError, OptionError) as error:
        fail(error, EXIT_SETTINGS)
    except KafscaleError as error:
        fail(error, EXIT_STARTUP)
    sys.exit(status)


@main.command()
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json", "terraform"]),
    default="table",
    show_default=True,
    help="How the rules are printed.",
)
@click.option(
    "--apply", is_flag=True, help="Give the bucket these rules; rules that are not Kafscale's stay."
)
@click.option("--check", is_flag=True, help="Say what --apply would change; exit status 4 if anything.")
@click.option(
    "--default-days", type=_DAYS, metavar="N", help="Everything of the namespace expires after N days."
)
@click.option(
    "--noncurrent-days", type=_DAYS, metavar="N", help="A versioned bucket keeps deleted objects N days."
)
@click.option(
    "--abort-multipart-days",
    type=_DAYS,
    metavar="N",
    default=7,
    show_default=True,
    help="Incomplete uploads go after N days.",
)
@click.option(
    "--safety-days",
    type=click.IntRange(0, 3650),
    metavar="N",
    default=1,
    show_default=True,
    help="How much longer than the brokers the bucket waits.",
)
def lifecycle(output_format: str, apply: bool, check: bool, **days: Any) -> None:
    """Print the bucket's expiry rules that the topics' retention implies, or apply them.

    The stores and the defaults are those that the broker's settings name: give the command the brokers'
    environment. docs/lifecycle.md explains the rules. Exit status: 0 done, 1 a store failed, 2 a setting or
    an option is not legal, 3 refused, 4 --check found a difference.
    """
    # Imported here so that `--help` and a bad setting answer without loading the stores.
    from kafscale.commands.lifecycle import Format, LifecycleCommand, run
    from kafscale.tools.lifecycle.bucket_rules import LifecycleOptions

    if (apply and check) or ((apply or check) and output_format != "table"):
        fail(SettingError("only one of --apply, --check and --format can be used at a time"), EXIT_SETTINGS)
    command = LifecycleCommand(
        options=LifecycleOptions(**days), output_format=Format(output_format), apply=apply, check=check
    )
    with_settings(lambda settings: run(settings, command, click.echo, echo_error))


@main.command()
@click.argument("files", nargs=-1, metavar="[FILE|URL...]")
@click.option("--groups", is_flag=True, help="Print the groups of the metadata store, of every type.")
@click.option("--group", "group_ids", multiple=True, metavar="ID", help="Only this group. May be repeated.")
@click.option("--verify", is_flag=True, help="Read every byte and check it; an index against its segment.")
@click.option("--records", is_flag=True, help="Print the records of each batch, too.")
@click.option(
    "--offset",
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    help="Begin with the batch that has offset N.",
)
@click.option("--max-batches", type=click.IntRange(1), metavar="N", help="Print so many batches and no more.")
@click.option("--topic", metavar="NAME", help="Of an entry, print this topic's slices with their batches.")
@click.option(
    "--partition", type=click.IntRange(0, 2**31 - 1), metavar="N", help="And only those of this partition."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def dump(
    files: tuple[str, ...],
    groups: bool,
    group_ids: tuple[str, ...],
    verify: bool,
    records: bool,
    offset: int | None,
    max_batches: int | None,
    topic: str | None,
    partition: int | None,
    as_json: bool,
) -> None:
    """Print what is in segments (.kfs), indexes (.index), checkpoints (.ckpt), and the entries, fences (.entry) and
    gathered objects (.gathered) of journals, with no cluster at hand.

    \b
    FILE|URL is a path, or one of
      file:///path  s3://bucket/key  gs://bucket/key  az://container/key

    For a bucket the KAFSCALE_S3_ settings give the endpoint, the region and the keys. Batches, records and
    index entries are printed as by Kafka's DumpLogSegments. docs/dump.md explains the output. Exit status:
    0 nothing wrong was found, 1 a file is damaged, 2 a file cannot be read, or an option is not legal.

    With --groups, it prints instead what the metadata store of the broker's settings has of groups: records,
    members, offsets, and the starts and states of share groups. Brokers may run meanwhile.
    """
    if groups or group_ids:
        if files or verify or records or offset is not None or max_batches is not None or topic is not None:
            raise click.UsageError("--groups goes with --group and --json only")
        from kafscale.commands.dump_groups import DumpGroupsOptions, run_dump_groups

        chosen = DumpGroupsOptions(group_ids=group_ids, as_json=as_json)
        with_settings(lambda settings: run_dump_groups(settings, chosen))
    if not files:
        raise click.UsageError("name a FILE or a URL, or give --groups")
    # Imported here so that `--help` answers without loading what reads the files.
    from kafscale.commands.dump import DumpOptions, run_dump
    from kafscale.tools.dump.findings import Look

    look = Look(
        verify=verify,
        records=records,
        from_offset=offset,
        max_batches=max_batches,
        topic=topic,
        partition=partition,
    )
    options = DumpOptions(targets=files, look=look, as_json=as_json)
    sys.exit(run_dump(options, os.environ))


@main.command()
@click.option("--verify", is_flag=True, help="Read every byte of what is published, and check it.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic. May be repeated.")
@click.option("--repair", is_flag=True, help="Do what is safe; without it nothing is written.")
@click.option(
    "--drop-missing",
    is_flag=True,
    help="Give up segments whose objects are gone: THEIR RECORDS ARE LOST. Only while no broker runs.",
)
@click.option("--ignore-holes", is_flag=True, help="Holes that nothing explains are no problems.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of tables.")
def fsck(
    verify: bool, topics: tuple[str, ...], repair: bool, drop_missing: bool, ignore_holes: bool, as_json: bool
) -> None:
    """Hold what the metadata store names against what lies in the object store.

    It runs beside the brokers of a cluster, or without them. Embedded stores serve one process at a time: stop
    their broker first. It reports what is missing, damaged or contradictory, and why each object is there that no
    record refers to. docs/fsck.md explains it. Exit status: 0 no problems (orphans and warnings are none), 1 a
    store failed, 2 a setting or an option is not legal, 3 problems.
    """
    # Imported here so that `--help` answers without loading the stores.
    from kafscale.commands.fsck import FsckOptions, run

    options = FsckOptions(
        verify=verify,
        topics=topics,
        as_json=as_json,
        repair=repair,
        drop_missing=drop_missing,
        ignore_holes=ignore_holes,
    )
    with_settings(lambda settings: run(settings, options, click.echo, echo_error))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")
def exports(as_json: bool) -> None:
    """Show how far the exports of topics into tables have come, and who is at work at them.

    The stores are those that the broker's settings name. It only reads, also beside running brokers and exporters.
    docs/exports.md explains the columns. Exit status: 0 done, 1 a store failed, 2 a setting is not legal.
    """
    # Imported here so that `--help` answers without loading the stores.
    from kafscale.commands.exports import run

    def show(settings: Settings) -> int:
        run(settings, as_json=as_json, output=click.echo)
        return 0

    with_settings(show)


@main.group()
def backup() -> None:
    """Snapshots of the metadata store: take them, list them, check them.

    The stores are those that the broker's settings name, and KAFSCALE_BACKUP_BUCKET. docs/backup.md says when to
    take them and how `kafscale recover --backup` uses them. Exit status: 0 done, 1 a store failed, 2 a setting or
    an option is not legal, 3 a snapshot is damaged.
    """


_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@backup.command("create")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Then remove all but the newest N.")
@click.option("--keep-days", type=_DAYS, metavar="N", help="With --keep: none that is younger than N days.")
@_AS_JSON
def backup_create(keep: int | None, keep_days: int | None, as_json: bool) -> None:
    """Take a snapshot of the metadata store, beside running brokers or without, and read it back."""
    from kafscale.commands.backup import Retention

    if keep is None and keep_days is not None:
        fail(SettingError("--keep-days is of no use without --keep"), EXIT_SETTINGS)
    retention = None if keep is None else Retention(keep=keep, keep_days=keep_days or 0)
    with_settings(lambda settings: _backup_command(settings, as_json).create(retention))


@backup.command("list")
@_AS_JSON
def backup_list(as_json: bool) -> None:
    """List the cluster's snapshots, oldest first."""
    with_settings(lambda settings: _backup_command(settings, as_json).list_all())


@backup.command("verify")
@click.argument("keys", nargs=-1, metavar="[KEY|newest]...")
@_AS_JSON
def backup_verify(keys: tuple[str, ...], as_json: bool) -> None:
    """Read snapshots from end to end and check all that is in them; without a KEY all that there are."""
    with_settings(lambda settings: _backup_command(settings, as_json).verify(keys))


def _backup_command(settings: Settings, as_json: bool) -> "BackupCommand":
    # Imported here so that `--help` and a bad setting answer without loading the stores.
    from kafscale.commands.backup import BackupCommand

    return BackupCommand(settings, as_json=as_json, output=click.echo, errors=echo_error)


def _pair(config: str) -> tuple[str, str]:
    name, equals, value = config.partition("=")
    if not equals:
        raise SettingError(f"--config {config!r} is not legal: it must be NAME=VALUE")
    return name, value
