"""Why TLS with an etcd endpoint fails, in words that name the setting: gRPC's errors do not."""

import asyncio
import ssl
from typing import Final

from kafscale.metadata.etcd.config import EtcdConfig

# What an HTTP/2 client says first; a server that takes the client's certificate answers, another one hangs up.
_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)


async def tls_refusal(endpoint: str, config: EtcdConfig, timeout_sec: float) -> str | None:
    """The problem with TLS and its remedy; None when there is none, or no server to ask."""
    scheme, _, address = endpoint.partition("://")
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        async with asyncio.timeout(timeout_sec):
            if scheme == "http":
                if await _speaks_tls(host, int(port)):
                    return f"etcd at {endpoint} speaks TLS: write https:// in KAFSCALE_ETCD_ENDPOINTS"
                return None
            context = _context(config)
            return await _refuses(endpoint, host, int(port), config, context)
    except _BadFileError as problem:
        return str(problem)
    except (OSError, TimeoutError):
        # A member that is away, or stopped, refuses nothing.
        return None


class _BadFileError(Exception):
    """A file cannot be used; the text says which setting names it."""


def _context(config: EtcdConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=config.ca)
    except ssl.SSLError as problem:
        raise _BadFileError(
            f"{config.ca} holds no certificate ({problem.reason}): correct KAFSCALE_ETCD_CA"
        ) from problem
    context.set_alpn_protocols(["h2"])
    if config.cert is not None:
        try:
            context.load_cert_chain(config.cert, config.key)
        except ssl.SSLError as problem:
            raise _BadFileError(
                f"the certificate {config.cert} cannot be used with the key {config.key} ({problem.reason}): "
                "correct KAFSCALE_ETCD_CERT and KAFSCALE_ETCD_KEY"
            ) from problem
    return context


async def _refuses(
    endpoint: str, host: str, port: int, config: EtcdConfig, context: ssl.SSLContext
) -> str | None:
    try:
        # From TLS 1.3 on a client learns what the server makes of its certificate with the first answer.
        await _answers(host, port, context)
    except ssl.SSLError as problem:
        return _explained(endpoint, config, problem)
    except ConnectionResetError:
        if await _answers(host, port, None):
            return f"etcd at {endpoint} does not speak TLS: write http:// in KAFSCALE_ETCD_ENDPOINTS"
    return None


async def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError:
        return False
    writer.transport.abort()
    return True


async def _answers(host: str, port: int, context: ssl.SSLContext | None) -> bool:
    """True if an HTTP/2 server answers; without a context, one that does not speak TLS."""
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(_HTTP2_PREFACE)
        return await reader.read(1) != b""
    finally:
        writer.transport.abort()


def _explained(endpoint: str, config: EtcdConfig, problem: ssl.SSLError) -> str:
    reason = problem.reason or str(problem)
    if isinstance(problem, ssl.SSLCertVerificationError):
        return (
            f"the certificate of etcd at {endpoint} is not to be trusted ({problem.verify_message}): set "
            "KAFSCALE_ETCD_CA to the authority that signed it, KAFSCALE_ETCD_ENDPOINTS to a name that it has"
        )
    if "ALERT" in reason:
        shown = f"the certificate {config.cert}" if config.cert else "a client without a certificate"
        return (
            f"etcd at {endpoint} refuses {shown} ({reason}): set KAFSCALE_ETCD_CERT and KAFSCALE_ETCD_KEY to a "
            "certificate that it trusts"
        )
    return (
        f"TLS with etcd at {endpoint} fails ({reason}): correct KAFSCALE_ETCD_ENDPOINTS and the certificates"
    )
