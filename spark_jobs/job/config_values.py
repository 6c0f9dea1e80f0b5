"""The decoding of a topic's values where the export follows the topic's configs. Pure."""

from dataclasses import replace

from kafscale.cluster.iceberg_configs import IcebergConfig
from spark_jobs.decoding.options import KeyFormat, ValueFormat, ValueOptions


def values_by_config(values: ValueOptions, config: IcebergConfig) -> ValueOptions:
    """The command line's `values` with what the topic says above them.

    Schemas of the command line are for its own format: a topic with another one does not get them, but for
    Protobuf's descriptor set, of which a topic says the message only.
    """
    found = values
    if config.value_format is not None and config.value_format != values.format:
        files = values.schema_files if config.value_format == ValueFormat.PROTOBUF else ()
        found = replace(
            found, format=ValueFormat(config.value_format), schema=None, schema_files=files, message=None
        )
    if config.key_format is not None:
        found = replace(found, key_format=KeyFormat(config.key_format))
    if config.schema is not None:
        found = replace(found, schema=config.schema, schema_files=())
    if config.message is not None:
        found = replace(found, message=config.message)
    return found
