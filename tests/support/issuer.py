"""An OpenID Connect issuer on the loopback, with its documents, its keys, and the JWTs that it signs."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from joserfc import jwt
from joserfc.jwk import ECKey, Key, RSAKey
from tests.support.wire import in_a_thread

AUDIENCE = "https://models.example"


@cache
def rsa(name: str) -> RSAKey:
    """Return an RSA key that is made only once, because making one takes a tenth of a second."""
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig"})


@cache
def curve(name: str) -> ECKey:
    """Return a key on the curve P-256."""
    return ECKey.generate_key("P-256", {"kid": name, "use": "sig"})


class FakeIssuer:
    """An issuer; a test may change all its parts while it runs."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[Key] = [rsa("first")]
        self.fetches: list[str] = []
        """The paths of all requests for documents."""
        self.documents: dict[str, bytes] = {}
        """The documents, by path, that are sent in place of the regular ones."""
        self.redirect: str | None = None
        self.forms: list[tuple[str, dict[str, str]]] = []
        """The path and the form of each request with a form."""
        self.logins: list[str | None] = []
        """The Authorization header of each request with a form."""
        self.answers: list[tuple[int, Any]] = []
        """The answers to forms, the next one first; bytes are sent unchanged, all other values as JSON."""
        self.away = False
        self.hangs = threading.Event()
        self.hangs.set()

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Return claims that are valid for a minute, with the changes `changed`; a value of None removes a claim."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "robot", "iat": now, "nbf": now, "exp": now + 60}
        return {name: value for name, value in {**usual, **changed}.items() if value is not None}

    def token(self, key: Key | None = None, header: dict[str, Any] | None = None, **changed: Any) -> str:
        """Return a JWT with `claims`, signed by `key` or by the first key."""
        key = key or self.keys[0]
        algorithm = "ES256" if isinstance(key, ECKey) else "RS256"
        said = {"alg": algorithm, "kid": key.kid, **(header or {})}
        kept = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(kept, self.claims(**changed), key, algorithms=[kept["alg"]])

    def answer(self, path: str) -> bytes:
        """Return the document at `path`."""
        if path in self.documents:
            return self.documents[path]
        if path == "/keys":
            return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()
        places = {"jwks_uri": "keys", "authorization_endpoint": "auth", "token_endpoint": "token"}
        places |= {"device_authorization_endpoint": "device"}
        return json.dumps({"issuer": self.url, **{name: f"{self.url}/{at}" for name, at in places.items()}}).encode()


@contextmanager
def running_issuer(tls: ssl.SSLContext | None = None) -> Iterator[FakeIssuer]:
    """Run an issuer until the block ends; with `tls`, it is at https://localhost."""
    issuer = FakeIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetches.append(self.path)
            issuer.hangs.wait(20)
            body = issuer.answer(self.path)
            self.send_response(503 if issuer.away else 302 if issuer.redirect else 200)
            if issuer.redirect:
                self.send_header("location", issuer.redirect)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            said = self.rfile.read(int(self.headers["content-length"])).decode()
            issuer.forms.append((self.path, dict(parse_qsl(said))))
            issuer.logins.append(self.headers["authorization"])
            issuer.hangs.wait(20)
            status, answer = (503, {}) if issuer.away else issuer.answers.pop(0)
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("location", f"{issuer.url}/elsewhere")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    with in_a_thread(server) as place:
        issuer.url = f"http://{place}" if tls is None else f"https://localhost:{place.rpartition(':')[2]}"
        try:
            yield issuer
        finally:
            issuer.hangs.set()
