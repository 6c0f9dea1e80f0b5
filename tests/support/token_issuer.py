"""An issuer of OAUTHBEARER's tokens: keys, tokens, and a small server with the key set."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

ISSUER, AUDIENCE = "https://issuer.example", "kafscale"


class TokenIssuer:
    """Keys that can be rotated. `published`: the key set as it is served.

    `answer`: served in place of the key set. `raw`: sent in place of a whole response.
    """

    def __init__(self) -> None:
        self._keys: dict[str, RSAKey | ECKey] = {}
        self.url = ""
        self.requests = 0
        self.answer: bytes | None = None
        self.raw: bytes | None = None

    def add_key(self, key_id: str, kind: str = "EC") -> None:
        parameters: Any = {"kid": key_id}
        if kind == "EC":
            self._keys[key_id] = ECKey.generate_key("P-256", parameters)
        else:
            self._keys[key_id] = RSAKey.generate_key(2048, parameters)

    def remove_key(self, key_id: str) -> None:
        del self._keys[key_id]

    def key(self, key_id: str) -> RSAKey | ECKey:
        return self._keys[key_id]

    def published(self) -> bytes:
        """The key set's bytes."""
        if self.answer is not None:
            return self.answer
        return json.dumps({"keys": [key.as_dict(private=False) for key in self._keys.values()]}).encode()

    def token(
        self,
        key_id: str,
        name: str | None = "alice",
        *,
        life_sec: float = 300,
        header: Mapping[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """A token that the key has signed; a claim that is None is left out."""
        now = int(time.time())
        key = self._keys[key_id]
        algorithm = "ES256" if isinstance(key, ECKey) else "RS256"
        all_claims = {
            "sub": name, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + life_sec, "scope": "kafka", **claims
        }  # fmt: skip
        whole_header = {"alg": algorithm, "kid": key_id, **(header or {})}
        return jwt.encode(
            {name: value for name, value in whole_header.items() if value is not None},
            {claim: value for claim, value in all_claims.items() if value is not None},
            key,
        )


@contextmanager
def token_issuer(*key_ids: str) -> Iterator[TokenIssuer]:
    """An issuer with its server at `url`."""
    issuer = TokenIssuer()
    for key_id in key_ids:
        issuer.add_key(key_id)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.requests += 1
            if issuer.raw is not None:
                self.wfile.write(issuer.raw)
                return
            data = issuer.published()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def client_message(token: str, authorization_id: str = "", extensions: str = "") -> bytes:
    """The first message of a client (RFC 7628)."""
    authzid = f"a={authorization_id}" if authorization_id else ""
    return f"n,{authzid},\x01auth=Bearer {token}\x01{extensions}\x01".encode()
