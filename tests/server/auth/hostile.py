"""Hostile requests by class, and a site that receives them, over plain sockets and over TLS."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from tests.server.auth.closed import bearer
from tests.server.auth.oidc.trusting import trust_file
from tests.support.certificates import certificate
from tests.support.hub import commit
from tests.support.issuer import FakeIssuer, running_issuer
from tests.support.serve import LiveServer, live_server

from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.run import certificate_of, uvicorn_config

SECRET: Final = b"of the other space alone " * 400
OWN: Final = b"of the own space " * 400
HIDDEN: Final = "/spaces/other/v1/stores/hidden-tag/files/m.onnx"
MLFLOW: Final = "/api/2.0/mlflow-artifacts"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
BLOB: Final = f"sha256:{hashlib.sha256(SECRET).hexdigest()}"
FACADES: Final = {
    "v1": HIDDEN,
    "the hub": "/spaces/other/team/hidden/resolve/main/m.onnx",
    "the hub's tree": "/spaces/other/api/models/team/hidden/tree/main",
    "a name of the hub": "/spaces/other/v1/stores/team%2Fhidden@main/files/m.onnx",
    "MLflow": f"/spaces/other{MLFLOW}/artifacts/hidden/m.onnx",
    "OCI's blobs": f"/spaces/other/v2/team/hidden/blobs/{BLOB}",
    "OCI's manifests": "/spaces/other/v2/team/hidden/manifests/v1",
}
"""For each protocol, a path in the other space."""


@dataclass(frozen=True)
class Site:
    """A service with content of every protocol in two spaces, callers of one space, and an admin."""

    live: LiveServer
    trusted: Path | None
    """The certificate of a site with TLS."""
    issuer: FakeIssuer
    admin: str
    reader: str
    writer: str
    store: str
    signed: str

    def http(self, token: str | None = None) -> httpx.Client:
        """Return a client of the site."""
        if self.trusted is None:
            return httpx.Client(base_url=self.live.url, headers=bearer(token))
        context = ssl.create_default_context(cafile=str(self.trusted))
        return httpx.Client(base_url=f"https://localhost:{self.live.port}", headers=bearer(token), verify=context)

    def connect(self) -> socket.socket:
        """Open a new connection."""
        plain = self.live.connect()
        if self.trusted is None:
            return plain
        return ssl.create_default_context(cafile=str(self.trusted)).wrap_socket(plain, server_hostname="localhost")

    def state(self) -> list[object]:
        """Return the content of both spaces, by every protocol."""
        with self.http(self.admin) as http:
            lists = ["v1/stores", "v1/tags", "v1/repositories", "v1/tokens", "v2/_catalog", "v2/team/hidden/tags/list"]
            lists += ["api/models/team/hidden/refs", f"{MLFLOW[1:]}/artifacts?path=hidden", "v2/team/own/tags/list"]
            found = [http.get(f"/spaces/{space}/{what}").json() for space in ("own", "other") for what in lists]
            return [{name: value for name, value in each.items() if name != "request_id"} for each in found]


@contextmanager
def running_site(folder: Path, *, tls: bool = False) -> Iterator[Site]:
    """Run a site over a folder."""
    given: dict[str, Any] = {}
    trusted = certificate(folder, "localhost")[1] if tls else None
    if trusted is not None:
        given = {"tls_cert": trusted, "tls_key": folder / "key.pem"}
    with running_issuer() as issuer:
        trust = trust_file(folder, issuer)
        storage = (folder / "storage").as_uri()
        settings = Settings(storage=storage, space_watermark_bytes=0, auth="tokens", issuers=trust, **given)
        app = create_app(settings)
        config, pair = uvicorn_config(app, settings), certificate_of(settings)
        if pair is not None:
            config.ssl_context_factory = lambda _, __: pair.context
        with live_server(config) as live:
            assert app.services.initial_admin_token is not None
            made = Site(live, trusted, issuer, app.services.initial_admin_token.text, "", "", "", "")
            with made.http(made.admin) as http:
                stores = {space: filled(http, space, *what) for space, what in _CONTENT.items()}
                reader, writer = (
                    http.post("/spaces/own/v1/tokens", json={"name": "r", "scopes": scopes}).json()["token"]
                    for scopes in (["read"], ["read", "write"])
                )
            with made.http(reader) as http:
                wanted = {"path": "/v1/stores/own-tag/files/m.onnx", "expires_seconds": 600}
                url = urlsplit(http.post("/spaces/own/v1/sign", json=wanted).json()["url"])
            signed = f"{url.path}?{url.query}"
            yield Site(live, trusted, issuer, made.admin, reader, writer, stores["own"], signed)


_CONTENT: Final = {"own": (OWN, "own"), "other": (SECRET, "hidden")}


def filled(http: httpx.Client, space: str, data: bytes, word: str) -> str:
    """Fill a space with content of every protocol; return the id of its store."""
    http.put(f"/v1/spaces/{space}")
    http.base_url = httpx.URL(http.base_url, path=f"/spaces/{space}")
    store: str = http.put(f"/v1/stores?filename=m.onnx&tag={word}-tag", content=data).json()["id"]
    http.post("/api/repos/create", json={"name": word, "organization": "team"})
    http.put(f"{MLFLOW}/artifacts/{word}/m.onnx", content=data)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    pushed = http.post(f"/v2/team/{word}/blobs/uploads/?digest={digest}", content=data)
    about = {"mediaType": "application/octet-stream", "digest": digest, "size": len(data)}
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": about, "layers": [about]}).encode()
    tagged = http.put(f"/v2/team/{word}/manifests/v1", content=manifest, headers={"content-type": MANIFEST})
    committed = commit(http, f"models/team/{word}", {"m.onnx": data})
    if not pushed.is_success & tagged.is_success & committed.is_success:
        raise RuntimeError(f"{pushed.text} {tagged.text} {committed.text}")
    http.base_url = httpx.URL(http.base_url, path="/")
    return store


def exchanged(site: Site, sent: bytes) -> bytes:
    """Send these bytes, which make the service close the connection, and return all that it answers."""
    with site.connect() as connection:
        connection.sendall(sent)
        found, waits = bytearray(), True
        while piece := connection.recv(1 << 16):
            found += piece
            if waits and _is_whole(found):
                # TLS cannot close one direction, so the service would wait for more of our bytes.
                socket.socket.shutdown(connection, socket.SHUT_WR)
                waits = False
        return bytes(found)


def _is_whole(found: bytearray) -> bool:
    head, end, body = bytes(found).partition(b"\r\n\r\n")
    length = re.search(rb"(?mi)^content-length: (\d+)\r?$", head)
    return bool(end) and length is not None and len(body) >= int(length[1])


def spellings(hidden: str) -> dict[str, str]:
    """Return targets that may lead to a path of the other space, by their oddity."""
    behind = hidden.removeprefix("/spaces/other/")
    return {
        "as it is": hidden,
        "two slashes in front": f"/{hidden}",
        "two slashes within": hidden.replace("/other/", "//other/"),
        "two slashes behind": hidden.replace("/other/", "/other//"),
        "dots": hidden.replace("/other/", "/own/../other/"),
        "dots behind": f"/spaces/own/v1/../../other/{behind}",
        "encoded dots": hidden.replace("/other/", "/own/%2e%2e/other/"),
        "encoded twice": hidden.replace("/other/", "/own/%252e%252e/other/"),
        "encoded slashes": hidden.replace("/other/", "/own%2f..%2fother/"),
        "one dot": hidden.replace("/other/", "/./other/"),
        "an encoded letter": hidden.replace("/other/", "/%6fther/"),
        "a backslash": hidden.replace("/other/", "/own\\..\\other/"),
        "a semicolon": hidden.replace("/other/", "/other;own/"),
        "a NUL": hidden.replace("/other/", "/own%00/../other/"),
        "upper case": hidden.replace("/spaces/other/", "/SPACES/OTHER/"),
        "a fragment": f"/spaces/own/v1/stores#{hidden}",
        "a space of a space": f"/spaces/own{hidden}",
        "the store's tag in the own space": hidden.replace("/other/", "/own/"),
        "a path in a reference": f"/spaces/own/v1/stores/..%2f..%2f..%2fspaces%2fother%2f{behind.replace('/', '%2f')}",
        "a path in a file's name": "/spaces/own/v1/stores/own-tag/files/..%2f..%2f..%2fother",
        "absolute": "http://localhost" + hidden,
        "absolute, of another host": "http://evil.example" + hidden,
        "absolute, with a user": "http://admin:admin@localhost" + hidden,
        "an asterisk": "*",
        "a query that overrides": f"/spaces/own/v1/stores?space=other&path={hidden}",
        "a signature of another path": hidden
        + "?psl-expires=99999999999&psl-token=aaaaaaaaaa&psl-signature="
        + "0" * 64,
    }


OWN_LISTS: Final = {"a query that overrides", "a fragment"}
"""The targets of the list in the caller's space, since unknown parameters and fragments are ignored."""

HEADERS: Final = {
    "a method overridden": "X-HTTP-Method-Override: DELETE",
    "a method": "X-HTTP-Method: DELETE",
    "a method of METHOD": "X-Method-Override: DELETE",
    "an original URL": f"X-Original-URL: {HIDDEN}",
    "a rewritten URL": f"X-Rewrite-URL: {HIDDEN}",
    "a prefix": "X-Forwarded-Prefix: /spaces/other",
    "a script name": "Script-Name: /spaces/other",
    "a user of a proxy": "X-Forwarded-User: admin",
    "a remote user": "Remote-User: admin",
    "a client certificate of a proxy": "X-Client-Cert: admin",
    "an address of the loopback": "X-Forwarded-For: 127.0.0.1",
    "a proxy's credential": "Proxy-Authorization: Bearer {admin}",
    "a cookie": "Cookie: token={admin}; session={admin}; authorization={admin}",
    "an underscore": "Authorization_: Bearer {admin}",
}

CREDENTIALS: Final = {
    "a NUL behind": b"Bearer {admin}\0",
    "a NUL within": b"Bearer \0{admin}",
    "a NUL for the blank": b"Bearer\0{admin}",
    "a line feed": b"Bearer x\nAuthorization: Bearer {admin}",
    "a carriage return": b"Bearer x\rAuthorization: Bearer {admin}",
    "a folded line": b"Bearer\r\n {admin}x",
    "a character less": b"Bearer {short}",
    "a character more": b"Bearer {admin}x",
    "another case": b"Bearer {upper}",
    "no scheme": b"{admin}",
    "another scheme": b"Token {admin}",
    "two in one": b"Bearer {reader}, Bearer {admin}",
    "two headers": b"Bearer {reader}\r\nAuthorization: Bearer {admin}",
    "a pattern": b"Bearer psl_*",
    "empty": b"Bearer ",
    "bytes that are no text": b"Bearer \xff\xfe",
    "Basic without base64": b"Basic {admin}",
    "Basic without a colon": b"Basic cHNsXw==",
    "Basic with a NUL": b"Basic AAAAOgAA",
    "Negotiate": b"Negotiate YII=",
}

SMUGGLED: Final = {
    "two lengths": b"Content-Length: 0\r\nContent-Length: 300\r\n",
    "a length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "chunks spelled otherwise": b"Transfer-Encoding: xchunked\r\n",
    "a blank before the colon": b"Content-Length : 300\r\n",
}
