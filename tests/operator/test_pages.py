"""The operator's pages: what a taken port is told as."""

import socket

import pytest
from prometheus_client import CollectorRegistry

from kafscale.errors import StartupError
from kafscale.operator.pages import Pages


async def test_a_taken_port_names_address_and_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError) as refused:
            await Pages(CollectorRegistry(), lambda: None).start("127.0.0.1", port)
    assert str(refused.value) == (
        f"cannot listen on 127.0.0.1:{port} for metrics: Address already in use; stop what uses it or set another "
        "--metrics-addr"
    )
