"""The principal of a client that has shown a certificate."""

from collections.abc import Sequence

from cryptography import x509

from kafscale.security.distinguished_name import distinguished_name
from kafscale.security.principal import ANONYMOUS, USER, Principal
from kafscale.settings.principal_mapping import MappingRule, NoMatchingRuleError, map_name


class UnnamedCertificateError(Exception):
    """A certificate gives its client no name. The message is for the log."""


def certificate_principal(certificate: bytes | None, rules: Sequence[MappingRule]) -> Principal:
    """The principal by the subject of a verified certificate (DER); `ANONYMOUS` without one.

    Raises `UnnamedCertificateError` if no rule matches, as Kafka refuses such a client.
    """
    if certificate is None:
        return ANONYMOUS
    try:
        subject = x509.load_der_x509_certificate(certificate).subject
        name = map_name(rules, distinguished_name(subject.public_bytes()))
    except (NoMatchingRuleError, ValueError) as problem:
        raise UnnamedCertificateError(f"the client's certificate gives it no name: {problem}") from problem
    if not name:
        raise UnnamedCertificateError("the client's certificate gives it an empty name")
    return Principal(USER, name)
