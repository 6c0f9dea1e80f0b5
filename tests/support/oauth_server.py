"""An OAuth server for tests: it publishes its keys (JWKS) and gives out tokens (client credentials)."""

import base64
import json
import threading
import time
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

ISSUER = "https://tests.invalid/issuer"
AUDIENCE = "kafka"
TOKEN_LIFETIME_SEC = 600.0
CLIENT_SECRET = "oauth-client-secret"


class SigningKey:
    """An RSA key with an id."""

    def __init__(self) -> None:
        self.kid = uuid.uuid4().hex[:8]
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    def sign(self, data: bytes) -> bytes:
        """The signature of RS256."""
        return self._key.sign(data, padding.PKCS1v15(), SHA256())

    def public(self) -> dict[str, str]:
        """Its entry in the JWKS."""
        numbers = self._key.public_key().public_numbers()
        return {
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid,
            "n": _number(numbers.n), "e": _number(numbers.e),
        }  # fmt: skip


class OauthServer:
    """Serves `jwks_url` and `token_url` on loopback, in a thread.

    A client's id is its subject, and its secret `CLIENT_SECRET`.
    """

    def __init__(self) -> None:
        self.keys = [SigningKey()]
        self.lifetime_sec = TOKEN_LIFETIME_SEC
        self._signing = self.keys[0]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"keys": [key.public() for key in outer.keys]})

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                subject = self._subject(form)
                if subject is None:
                    self._answer(401, {"error": "invalid_client"})
                else:
                    claims = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
                    self._answer(
                        200,
                        {
                            "access_token": outer.token(subject, **json.loads(claims.get("claims", "{}"))),
                            "token_type": "Bearer",
                            "expires_in": int(outer.lifetime_sec),
                        },
                    )

            def _subject(self, form: str) -> str | None:
                """The client that the Authorization header or the form names, if its secret is right."""
                scheme, _, credentials = self.headers.get("Authorization", "").partition(" ")
                if scheme.lower() == "basic":
                    name, _, secret = base64.b64decode(credentials).decode().partition(":")
                else:
                    fields = dict(urllib.parse.parse_qsl(form))
                    name, secret = fields.get("client_id", ""), fields.get("client_secret", "")
                return urllib.parse.unquote(name) if name and secret == CLIENT_SECRET else None

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name in the base)
                """Nothing on the tests' output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def jwks_url(self) -> str:
        """Where its keys are."""
        return f"{self.url}/jwks"

    @property
    def token_url(self) -> str:
        """Where a client gets a token."""
        return f"{self.url}/token"

    def token_url_with(self, **claims: Any) -> str:
        """Where a client gets a token with other claims."""
        return f"{self.token_url}?{urllib.parse.urlencode({'claims': json.dumps(claims)})}"

    def token(self, subject: str, *, is_next: bool = False, **claims: Any) -> str:
        """A token of the client; `claims` replace its own, and None removes one.

        `is_next`: signed with the key that was published last.
        """
        key = self.keys[-1] if is_next else self._signing
        now = time.time()
        body: dict[str, Any] = {
            "iss": ISSUER, "aud": AUDIENCE, "sub": subject, "scope": "kafka", "jti": uuid.uuid4().hex,
            "iat": int(now) - 1, "exp": int(now + self.lifetime_sec),
        } | claims  # fmt: skip
        head = {"alg": "RS256", "typ": "JWT", "kid": key.kid}
        signed = f"{_json(head)}.{_json({name: one for name, one in body.items() if one is not None})}"
        return f"{signed}.{_text(key.sign(signed.encode()))}"

    def unsigned_token(self, subject: str) -> str:
        """A token with `alg: none`."""
        now = int(time.time())
        body = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": subject,
            "scope": "kafka",
            "iat": now,
            "exp": now + 600,
        }
        return f"{_json({'alg': 'none', 'typ': 'JWT'})}.{_json(body)}."

    def publish_key(self) -> None:
        """Publish another key beside the one that signs."""
        self.keys.append(SigningKey())

    def sign_with_newest(self) -> None:
        """Sign with the key that was published last."""
        self._signing = self.keys[-1]

    def withdraw_old_keys(self) -> None:
        """Publish only the key that signs."""
        self.keys = [self._signing]

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _json(value: dict[str, Any]) -> str:
    return _text(json.dumps(value).encode())


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
