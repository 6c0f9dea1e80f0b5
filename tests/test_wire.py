"""The raw client of the tests gives its sockets back."""

import gc
import socket
import ssl
import struct
import threading
import warnings

import pytest

from tests.support.wire import Wire

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


def test_no_socket_is_left_of_a_connection_reset_before_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        was_reset = threading.Event()

        def reset() -> None:
            accepted, _ = server.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            accepted.close()
            was_reset.set()

        thread = threading.Thread(target=reset)
        thread.start()
        connect = socket.create_connection

        def connected(address: tuple[str, int], timeout: float) -> socket.socket:
            plain = connect(address, timeout)
            was_reset.wait()
            return plain

        monkeypatch.setattr(socket, "create_connection", connected)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", ResourceWarning)
            with pytest.raises(OSError):
                Wire("127.0.0.1", server.getsockname()[1], tls=ssl.create_default_context())
            gc.collect()
        thread.join()
    assert [str(one.message) for one in found if "SSLSocket" in str(one.message)] == []
