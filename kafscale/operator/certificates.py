"""Certificates that the operator issues, for servers and clients, and their authorities. Pure but for randomness.

A certificate is renewed in the last third of its life. An authority lives longer; only the operator reads its key.
"""

import base64
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

Secrets = Mapping[str, Mapping[str, bytes]]
"""Data of the existing Secrets, by name."""

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""Every server's certificate names them, too."""

_AUTHORITY_LIFE: Final = timedelta(days=3650)
_LIFE: Final = timedelta(days=365)
# Nodes' clocks may be behind the operator's.
_BACKDATED: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


def new_authority(common_name: str, now: datetime) -> KeyPair:
    """Creates a self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    builder = (
        _builder(name, name, key, now, _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: KeyPair, common_name: str, hosts: Sequence[str], now: datetime) -> KeyPair:
    """Issues a certificate for clients, and for servers too if `hosts` is not empty."""
    signer = x509.load_pem_x509_certificate(authority.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    builder = (
        _builder(_name(common_name), signer.subject, key, now, _LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
    return _pair(builder.sign(_private_key(authority), hashes.SHA256()), key)


def is_current(pair: KeyPair, authority: KeyPair, hosts: Sequence[str], now: datetime) -> bool:
    """True if issued by the authority for these hosts, with a matching key and more than a third of its life left."""
    found = x509.load_pem_x509_certificate(pair.certificate)
    try:
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    except (InvalidSignature, ValueError, TypeError):
        return False
    try:
        told = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        alternatives = set(told)
    except x509.ExtensionNotFound:
        alternatives = set()
    life = found.not_valid_after_utc - found.not_valid_before_utc
    return (
        alternatives == set(_alternatives(hosts))
        and found.public_key() == _private_key(pair).public_key()
        and now < found.not_valid_after_utc - life / 3
    )


def has_current_pair(
    held: Mapping[str, bytes], authority: KeyPair, hosts: Sequence[str], now: datetime
) -> bool:
    """True if a Secret has a current pair (see `is_current`), and the authority's certificate beside it."""
    pair = read_pair(held)
    return (
        pair is not None and held.get(CA) == authority.certificate and is_current(pair, authority, hosts, now)
    )


def stored_or_new_authority(
    held: Mapping[str, bytes], common_name: str, now: datetime
) -> tuple[KeyPair, bool]:
    """A Secret's authority, or a new one if it has no valid one; and True if it is new."""
    authority = read_pair(held)
    if authority is not None and _is_authority(authority, now):
        return authority, False
    return new_authority(common_name, now), True


def _is_authority(pair: KeyPair, now: datetime) -> bool:
    """True if it has not expired and the key is its own."""
    found = x509.load_pem_x509_certificate(pair.certificate)
    return now < found.not_valid_after_utc and found.public_key() == _private_key(pair).public_key()


def read_pair(held: Mapping[str, bytes], certificate: str = CERTIFICATE, key: str = KEY) -> KeyPair | None:
    """Parses a certificate and key of a Secret, under these names; None if missing or invalid."""
    pair = KeyPair(held.get(certificate, b""), held.get(key, b""))
    try:
        x509.load_pem_x509_certificate(pair.certificate)
        _private_key(pair)
    except (ValueError, TypeError):
        return None
    return pair


def _private_key(pair: KeyPair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key is not one of an elliptic curve")
    return key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    """A common name, which X.509 limits to 64 characters."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _alternatives(hosts: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for host in hosts:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            found.append(x509.DNSName(host))
    return found


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), encoded)


def pair_data(pair: KeyPair, authority: KeyPair) -> dict[str, bytes]:
    """Data of a Secret with a pair and the certificate of its authority."""
    return {CA: authority.certificate, CERTIFICATE: pair.certificate, KEY: pair.key}


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    """A Secret's `data`."""
    return {key: base64.b64encode(content).decode() for key, content in data.items()}
