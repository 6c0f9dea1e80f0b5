"""The jars and the Java of the Apache Kafka peer; the compatibility tests use the same folder."""

import shutil
from pathlib import Path

from tests.compat.tools import (
    KAFKA_LIBS,
    KAFKA_SHARE_LIBS,
    CannotInstallError,
    install_kafka_libs,
    install_kafka_share_libs,
)


class KafkaUnavailableError(Exception):
    """This machine cannot run Apache Kafka; the text says what is missing."""


def kafka_libraries() -> Path:
    """The folder with Kafka's jars; Maven fetches them first if they are missing."""
    try:
        install_kafka_libs()
    except CannotInstallError as error:
        raise KafkaUnavailableError(str(error)) from error
    return KAFKA_LIBS


def kafka_share_libraries() -> Path:
    """The same of the first Kafka whose share groups are finished."""
    try:
        install_kafka_share_libs()
    except CannotInstallError as error:
        raise KafkaUnavailableError(str(error)) from error
    return KAFKA_SHARE_LIBS


def kafka_version() -> str:
    """The version of the jars, such as 4.1.1."""
    (server,) = kafka_libraries().glob("kafka_2*.jar")
    return server.stem.rpartition("-")[2]


def java() -> str:
    """The path of the Java launcher."""
    path = shutil.which("java")
    if path is None:
        raise KafkaUnavailableError("java is not installed: the Apache Kafka peer needs a JDK 17 or newer")
    return path
