"""The principal of a client that has shown a certificate."""

from collections.abc import Sequence
from datetime import datetime

from cryptography import x509

from kafscale.security.distinguished_name import distinguished_name
from kafscale.security.principal import ANONYMOUS, USER, Principal
from kafscale.settings.principal_mapping import MappingRule, NoMatchingRuleError, map_name


class UnnamedCertificateError(Exception):
    """A certificate gives its client no name, or not at this time. The message is for the log."""


def certificate_principal(
    certificate: bytes | None, rules: Sequence[MappingRule], now: datetime
) -> Principal:
    """The principal by the subject of a verified certificate (DER); `ANONYMOUS` without one.

    The time is checked again: a TLS session that is resumed shows the certificate of its begin. Raises
    `UnnamedCertificateError` outside of it, and if no rule matches, as Kafka refuses such a client.
    """
    if certificate is None:
        return ANONYMOUS
    try:
        shown = x509.load_der_x509_certificate(certificate)
        name = map_name(rules, distinguished_name(shown.subject.public_bytes()))
        is_valid = shown.not_valid_before_utc <= now <= shown.not_valid_after_utc
    except (NoMatchingRuleError, ValueError, x509.InvalidVersion) as problem:
        raise UnnamedCertificateError(f"the client's certificate gives it no name: {problem}") from problem
    if not is_valid:
        raise UnnamedCertificateError("the client's certificate has expired, or is not valid yet")
    if not name:
        raise UnnamedCertificateError("the client's certificate gives it an empty name")
    return Principal(USER, name)
