"""Dex as an issuer on the loopback, and a person who signs in at its pages without a browser."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import urljoin

import httpx

CLIENT: Final = "protoslice"
KEEPER: Final = "protoslice page"
SECRET: Final = "a secret: with + and %"
"""Secret of the client that keeps one."""
EMAIL: Final = "admin@example.com"
PASSWORD: Final = "password"
_HASH: Final = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"
_PATIENCE_SECONDS: Final = 30


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Dex:
    """Dex over a database in a folder, which it finds again when it is started once more."""

    def __init__(self, program: Path, folder: Path, callbacks: tuple[str, str], expiry: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}/dex"
        self._log = folder / "dex.log"
        self._command = [str(program), "serve", str(folder / "dex.json")]
        self._at_end = ExitStack()
        self._running: subprocess.Popen[bytes] | None = None
        self._config = folder / "dex.json"
        self._settings = self._told(folder, *callbacks, expiry)
        self._config.write_text(json.dumps(self._settings))

    def _told(self, folder: Path, callback: str, keepers: str, expiry: dict[str, str]) -> dict[str, Any]:
        redirects = [callback, "/device/callback"]
        return {
            "issuer": self.url,
            "storage": {"type": "sqlite3", "config": {"file": str(folder / "dex.db")}},
            "web": {"http": self.url.removeprefix("http://").removesuffix("/dex")},
            "expiry": expiry,
            "oauth2": {"skipApprovalScreen": True},
            "staticClients": [
                {"id": CLIENT, "name": "Protoslice", "public": True, "redirectURIs": redirects},
                {"id": KEEPER, "name": "Protoslice's page", "secret": SECRET, "redirectURIs": [keepers]},
            ],
            "enablePasswordDB": True,
            "staticPasswords": [{"email": EMAIL, "hash": _HASH, "username": "admin", "userID": "1"}],
        }

    def __enter__(self) -> Dex:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and wait until the issuer answers."""
        log = self._at_end.enter_context(self._log.open("ab"))
        self._running = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                httpx.get(f"{self.url}/.well-known/openid-configuration").raise_for_status()
            except httpx.HTTPError:
                if time.monotonic() > deadline or self._running.poll() is not None:
                    self.stop()
                    raise RuntimeError(f"Dex does not start: {self._log.read_text()[-2000:]}") from None
                time.sleep(0.2)
            else:
                return

    def stop(self) -> None:
        """End the issuer, which keeps its database."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
        self._running = None
        self._at_end.close()

    def forget_people(self) -> None:
        """Start again without any person, as when an account is disabled."""
        self.stop()
        self._config.write_text(json.dumps(self._settings | {"staticPasswords": []}))
        self.start()

    def key_ids(self) -> set[str]:
        """Ids of the keys that it publishes."""
        return {key["kid"] for key in httpx.get(f"{self.url}/keys").json()["keys"]}


def submitted(person: httpx.Client, page: httpx.Response, **values: str) -> httpx.Response:
    """The answer to the form of a page of Dex, with these values."""
    found = re.search(r'<form[^>]*\saction="([^"]*)"', page.text)
    if found is None:
        raise AssertionError(f"no form: {page.status_code} {page.url} {page.text[:500]}")
    return person.post(urljoin(str(page.url), unescape(found[1])), data=values)


def authenticated(person: httpx.Client, page: httpx.Response) -> httpx.Response:
    """The page behind Dex's form for a password."""
    return submitted(person, page, login=EMAIL, password=PASSWORD)


def enter_code(place: str, code: str) -> None:
    """Sign in for a device, as a person with a browser of another machine."""
    with httpx.Client(follow_redirects=True, timeout=30) as person:
        page = submitted(person, person.get(place), user_code=code)
        done = authenticated(person, page)
        assert "Login Successful" in done.text, done.text[:1000]
