"""The server's side of SCRAM (RFC 5802, RFC 7677) for one client, without channel binding. A pure state machine.

Where Kafka and the RFC differ, it is as in Kafka: names are not prepared by SASLprep, so that every name that an
administrator can create can log in. An unknown user fails where a wrong password does, in the second step.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from kafscale.formats.user_record import MAX_NAME_CHARACTERS, ScramCredential, ScramMechanism
from kafscale.security.sasl import Authenticated, AuthenticationError, Challenge, Step
from kafscale.security.scram import Decoys, digest, keyed_hash

MAX_NONCE_CHARACTERS: Final = 1024

_NONCE = rf"[\x21-\x2b\x2d-\x7e]{{1,{MAX_NONCE_CHARACTERS}}}"
_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[a-zA-Z]=[^,\x00]+)*"
# `m` is reserved for extensions that a server must know: none are known here, so a client that sends it fails.
_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>[A-Za-z0-9/+=]+),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9/+=]+)"
)

Lookup = Callable[[str], ScramCredential | None]
"""The credential of a user, None without one."""


class ScramExchange:
    """See `Exchange`. Two tokens of the client: its name and nonce, then the proof that it knows the password."""

    def __init__(self, mechanism: ScramMechanism, lookup: Lookup, decoys: Decoys, nonce: str) -> None:
        """`nonce`: this server's part, printable and without commas, never used before."""
        self._mechanism = mechanism
        self._lookup = lookup
        self._decoys = decoys
        self._server_nonce = nonce
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._name = ""
        self._gs2_header = ""
        self._nonce = ""
        self._messages = ""

    def respond(self, token: bytes) -> Step:
        """See `Exchange`."""
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationError("a message is not UTF-8") from None
        return self._first(message) if self._credential is None else self._final(message, self._credential)

    def _first(self, message: str) -> Step:
        found = _FIRST.fullmatch(message)
        if found is None:
            raise AuthenticationError("the client's first message is malformed")
        name = _unescaped(found["name"])
        if len(name) > MAX_NAME_CHARACTERS:
            raise AuthenticationError("the user's name is too long")
        if found["authzid"] is not None and _unescaped(found["authzid"]) != name:
            raise AuthenticationError("the client asks for an authorization id that is not its user")
        credential = self._lookup(name)
        self._is_known = credential is not None
        self._credential = credential = credential or self._decoys.credential(self._mechanism, name)
        self._name, self._gs2_header = name, found["gs2"]
        self._nonce = found["nonce"] + self._server_nonce
        answer = f"r={self._nonce},s={_base64(credential.salt)},i={credential.iterations}"
        self._messages = f"{found['bare']},{answer}"
        return Challenge(answer.encode())

    def _final(self, message: str, credential: ScramCredential) -> Step:
        found = _FINAL.fullmatch(message)
        if found is None:
            raise AuthenticationError("the client's final message is malformed")
        if found["binding"] != _base64(self._gs2_header.encode()):
            raise AuthenticationError("the client's final message has another channel binding than its first")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise AuthenticationError("the client's final message has another nonce")
        try:
            proof = b64decode(found["proof"], validate=True)
        except (binascii.Error, ValueError):
            raise AuthenticationError("the client's proof is not base64") from None
        mechanism = self._mechanism
        if len(proof) != mechanism.hash_bytes:
            raise AuthenticationError("the client's proof has another length than a hash")
        signed = f"{self._messages},{found['without_proof']}".encode()
        signature = keyed_hash(mechanism, credential.stored_key, signed)
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        proves = hmac.compare_digest(digest(mechanism, client_key), credential.stored_key)
        if not (proves and self._is_known):
            raise AuthenticationError("wrong password" if self._is_known else "unknown user")
        verifier = keyed_hash(mechanism, credential.server_key, signed)
        return Authenticated(f"v={_base64(verifier)}".encode(), self._name)

    @property
    def name(self) -> str:
        """The user that the client says it is; empty before its first message."""
        return self._name


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
