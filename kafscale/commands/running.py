"""Runs commands with the environment's settings; their failures become a line and an exit status."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from kafscale.errors import KafscaleError, SettingError, StartupError
from kafscale.masking import without_credentials
from kafscale.ops.logs import configure_logging
from kafscale.settings.broker import LogLevel, Settings, load_settings, unknown_settings

EXIT_STARTUP = 1
EXIT_SETTINGS = 2

_logger = logging.getLogger(__name__)


@contextmanager
def no_garbage() -> Iterator[None]:
    """No collection of what is made here, which stays: it was a sixth of the time to load a broker."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def run_broker(start: Callable[[Settings], int]) -> NoReturn:
    """Run a broker with the environment's settings; exits with its status."""
    if os.getpid() == 1:
        # The first process of a container gets no signal that it has no handler for; the broker's own comes late.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        settings = load_settings(os.environ)
        configure_logging(settings.log_level, settings.log_format)
        for line in unknown_settings(os.environ):
            _logger.warning(line)
        status = start(settings)
    except SettingError as error:
        fail(error, EXIT_SETTINGS)
    except StartupError as error:
        fail(error, EXIT_STARTUP)
    sys.exit(status)


def with_settings(run: Callable[[Settings], int]) -> NoReturn:
    """Run a command with the environment's settings; exits with its status."""
    try:
        settings = load_settings(os.environ)
        configure_command_logging(settings)
        status = run(settings)
    except SettingError as error:
        fail(error, EXIT_SETTINGS)
    except KafscaleError as error:
        fail(error, EXIT_STARTUP)
    sys.exit(status)


def configure_command_logging(settings: Settings) -> None:
    """As the settings say, without the broker's `info` lines: they would stand before what was asked for."""
    level = LogLevel.WARNING if settings.log_level is LogLevel.INFO else settings.log_level
    configure_logging(level, settings.log_format)
    for line in unknown_settings(os.environ):
        _logger.warning(line)


def echo_error(line: str) -> None:
    """Print a line to standard error, without credentials."""
    click.echo(f"kafscale: {without_credentials(line)}", err=True)


def fail(error: Exception, status: int) -> NoReturn:
    """Print the error and exit."""
    echo_error(str(error))
    sys.exit(status)
