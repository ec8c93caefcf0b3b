"""Dex as the issuer of users: device flow, renewal, and the page in Chromium."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from html import unescape
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import urljoin

import httpx
from tests.browser.windows import chromium, opened, window
from tests.clients.running import built_page, program, programs
from tests.support.serve import ServiceProcess, service_process

from protoslice.credentials import end_of

CLIENT: Final = "protoslice"
KEEPER: Final = "protoslice page"
SECRET: Final = "a secret: with + and %"
"""The secret of a client that can hold a secret."""
EMAIL: Final = "admin@example.com"
PASSWORD: Final = "password"
_HASH: Final = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"
_PATIENCE_SECONDS: Final = 30


def free_port() -> int:
    """Return a loopback port that no program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Dex:
    """Dex over a database in a folder, which it finds again after a restart."""

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
        """Stop the issuer, which keeps its database."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
        self._running = None
        self._at_end.close()

    def forget_people(self) -> None:
        """Restart without any user, as when an account is disabled."""
        self.stop()
        self._config.write_text(json.dumps(self._settings | {"staticPasswords": []}))
        self.start()

    def key_ids(self) -> set[str]:
        """Return the ids of the published keys."""
        return {key["kid"] for key in httpx.get(f"{self.url}/keys").json()["keys"]}


def submitted(person: httpx.Client, page: httpx.Response, **values: str) -> httpx.Response:
    """Return the answer to the form of a page of Dex, submitted with these values."""
    found = re.search(r'<form[^>]*\saction="([^"]*)"', page.text)
    if found is None:
        raise AssertionError(f"no form: {page.status_code} {page.url} {page.text[:500]}")
    return person.post(urljoin(str(page.url), unescape(found[1])), data=values)


def authenticated(person: httpx.Client, page: httpx.Response) -> httpx.Response:
    """Return the page after Dex's password form."""
    return submitted(person, page, login=EMAIL, password=PASSWORD)


def enter_code(place: str, code: str) -> None:
    """Sign in for a device, like a user with a browser on another machine."""
    with httpx.Client(follow_redirects=True, timeout=30) as person:
        page = submitted(person, person.get(place), user_code=code)
        done = authenticated(person, page)
        assert "Login Successful" in done.text, done.text[:1000]


EXPIRY: Final = {"idTokens": "80s", "signingKeys": "120s", "deviceRequests": "5m"}
"""The times of Dex: tokens are renewed from 20 s on; a key signs for at most 150 s."""
QUIET: Final = ("Failed to load resource", "Clear-Site-Data header", "[DOM] Input elements")
"""The expected browser messages about an intended refusal, the end of a session, and the page of Dex."""
OWN: Final = {"sec-fetch-site": "same-origin"}


class Home:
    """A user of the command line, with a separate configuration."""

    def __init__(self, folder: Path, service: str) -> None:
        self._environment = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(folder)}
        self._file = folder / "protoslice/credentials.json"
        self.service = service

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a verb, and return its process."""
        command = [sys.executable, "-m", "protoslice.cli", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self._environment)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and all output of a verb."""
        running = self.begin(*arguments)
        out, err = running.communicate(timeout=120)
        return running.returncode, out + err

    def login(self) -> str:
        """Sign in by device flow, with a user who enters the code; return the verb's output."""
        running = self.begin("login", "--device", self.service)
        assert running.stderr is not None
        said = ""
        while (found := re.search(r"Open (\S+) and enter the code (\S+?),? ", said)) is None:
            line = running.stderr.readline()
            assert line, said
            said += line
        enter_code(found[1], found[2])
        rest = running.communicate(timeout=120)[1]
        assert running.returncode == 0, said + rest
        return said + rest

    @property
    def kept(self) -> dict[str, str]:
        """Return the members of the credential that is saved for the service."""
        found: dict[str, str] = json.loads(self._file.read_text())[self.service]
        return found


def run(folder: Path) -> str:
    """Go through everything; each step asserts."""
    programs("chromium")
    built_page()
    port, keepers_port = free_port(), free_port()
    callbacks = (callback_of(port), callback_of(keepers_port))
    public = f"audience = '{CLIENT}'\nlogin_client = '{CLIENT}'"
    with (
        Dex(program("dex"), folder, callbacks, EXPIRY) as dex,
        service_of(folder / "public", port, dex, public) as service,
    ):
        home = Home(folder, service.url)
        device_flow(home)
        renewal(home, dex)
        sessions(dex, service)
        in_a_browser(service)
        with_a_secret(folder, keepers_port, dex)
        away_and_back(home, dex)
        disabled(home, dex)
    return "Dex v0.0.0-20210917061239"


def callback_of(port: int) -> str:
    """Return the address to which Dex redirects users."""
    return f"http://127.0.0.1:{port}/session/callback"


@contextmanager
def service_of(folder: Path, port: int, dex: Dex, clients: str) -> Iterator[ServiceProcess]:
    """Run a service that lets users of Dex read, who sign in as `clients`."""
    folder.mkdir()
    trust = f"[[issuer]]\nurl = '{dex.url}'\n{clients}\nname = 'email'\nnetworks = ['127.0.0.1']\n[[issuer.allow]]\n"
    trust += f"claims = {{ email = '{EMAIL}', email_verified = 'true' }}\nspace = 'default'\nscopes = ['read']\n"
    (folder / "issuers.toml").write_text(trust)
    settings = {"PROTOSLICE_AUTH": "tokens", "PROTOSLICE_ISSUERS": str(folder / "issuers.toml")}
    settings["PROTOSLICE_STORAGE"] = (folder / "storage").as_uri()
    with service_process("--port", str(port), settings=settings) as service:
        yield service


def device_flow(home: Home) -> None:
    """Sign in by device flow; read, and expect that writing is refused."""
    assert home.run("ls", "--url", home.service)[0] == 6
    said = home.login()
    assert "; renewed automatically" in said, said
    assert home.run("ls", "--url", home.service)[0] == 0
    code, output = home.run("push", __file__, "--url", home.service)
    assert (code, "the token lacks the scope write" in output) == (6, True), output
    tell("device flow: signed in, reads, and is refused to write")


def renewal(home: Home, dex: Dex) -> None:
    """Let the token and its key expire: four processes renew it once, and the old token is refused."""
    before, keys = home.kept, dex.key_ids()
    until(before["id_token"], left=50)
    running = [home.begin("ls", "--url", home.service) for _ in range(4)]
    assert [each.wait(120) for each in running] == [0] * 4
    after = home.kept
    assert after["id_token"] != before["id_token"]
    assert after["refresh_token"] != before["refresh_token"]
    tell("renewal: four processes at once, one new token, all let in")
    until(before["id_token"], left=-1)
    headers = {"authorization": f"Bearer {before['id_token']}"}
    assert httpx.get(f"{home.service}/v1/stores", headers=headers).status_code == 401
    tell("a token that has ended is refused")
    while dex.key_ids() == keys:
        time.sleep(2)
    time.sleep(31)  # unknown keys are fetched at most every 30 s
    until(home.kept["id_token"], left=55)
    assert home.run("ls", "--url", home.service)[0] == 0
    tell("keys have been rotated: a token by the new one is let in")


def sessions(dex: Dex, service: ServiceProcess) -> None:
    """Sign in by the code flow without a browser; replay and swap the answers."""
    with httpx.Client(follow_redirects=False, timeout=30) as person, httpx.Client(timeout=30) as other:
        back = way_back(service, dex, person)
        login = person.cookies["protoslice-login"]
        other.get(f"{service.url}/session/login")
        assert other.get(back).status_code == 400, "the link of another browser"
        assert person.get(back.replace("state=", "state=x")).status_code == 400, "a swapped state"
        person.cookies.set("protoslice-login", login, domain="127.0.0.1", path="/")
        entered = person.get(back)
        assert (entered.status_code, entered.headers.get("location")) == (303, "/m/x"), entered.text
        assert person.get(f"{service.url}/v1/stores", headers=OWN).status_code == 200
        assert person.get(f"{service.url}/session", headers=OWN).json()["name"] == EMAIL
        refused = person.put(f"{service.url}/v1/stores?filename=x", content=b"x", headers=OWN)
        assert refused.status_code == 403, refused.text
        with httpx.Client(cookies={"protoslice-login": login}) as again:
            replayed = again.get(back)
            assert (replayed.status_code, "rejected the code" in replayed.text) == (400, True), replayed.text
    tell("code flow: state swapped and code replayed refused, a session reads and is refused to write")


def in_a_browser(service: ServiceProcess) -> None:
    """Sign in on the page in chromium, by Dex and by a typed token, and out."""
    assert service.running.stdout is not None
    admin = re.search(r"psl_\w+", service.running.stdout.readline())
    assert admin is not None
    with chromium() as browser, window(browser, service.url, may_say=QUIET) as context:
        page = opened(context, "/operations")
        page.get_by_role("link", name=re.compile("Sign in with 127.0.0.1")).click()
        page.locator("input[name=login]").fill(EMAIL)
        page.locator("input[name=password]").fill(PASSWORD)
        page.locator("button[type=submit]").click()
        page.wait_for_url(f"{service.url}/operations")
        page.get_by_role("button", name="Sign out").wait_for()
        assert EMAIL in page.inner_text("header")
        assert "protoslice-session" not in page.evaluate("document.cookie")
        page.get_by_role("link", name="Library").click()
        page.get_by_text("No models yet").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Sign in").wait_for()
        page.get_by_label("token").fill("psl_wrong")
        page.get_by_role("button", name="Sign in").click()
        page.locator(".trouble").wait_for()
        page.get_by_label("token").fill(admin[0])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("No models yet").wait_for()
        assert "admin" in page.inner_text("header")
    tell("chromium: signed in at Dex, out, and in again with a token")


def away_and_back(home: Home, dex: Dex) -> None:
    """Stop the issuer: known users stay signed in until their token expires. After a restart everything works again."""
    dex.stop()
    assert home.run("ls", "--url", home.service)[0] == 0
    until(home.kept["id_token"], left=-1)
    code, output = home.run("ls", "--url", home.service)
    assert (code, "Could not renew" in output, "the JWT expired" in output) == (6, True, True), output
    dex.start()
    assert home.run("ls", "--url", home.service)[0] == 0
    tell("issuer away: known until the end of the token, told why then; renewed when it is back")


def with_a_secret(folder: Path, port: int, dex: Dex) -> None:
    """Sign in on the page of a service that is a confidential client; expect that a wrong secret is refused."""
    secret = folder / "secret"
    clients = f"audience = ['{KEEPER}', '{CLIENT}']\nlogin_client = '{KEEPER}'\nlogin_secret_file = '{secret}'"
    for word, more, status, output in (
        (SECRET, f"\ndevice_client = '{CLIENT}'", 303, CLIENT),
        ("wrong", "", 400, "the issuer has no `device_client`"),
    ):
        secret.write_text(word + "\n")
        with service_of(folder / f"secret-{status}", port, dex, clients + more) as service:
            with httpx.Client(follow_redirects=False, timeout=30) as person:
                answer = person.get(way_back(service, dex, person))
                assert (answer.status_code, "rejected the code" in answer.text) == (status, status == 400)
                named = person.get(f"{service.url}/session", headers=OWN).json()["name"]
                assert named == (EMAIL if status == 303 else None)
            assert output in httpx.get(f"{service.url}/.well-known/oauth-protected-resource").text
            assert word not in service.log.read_text()
    tell(
        "confidential client: signed in with its secret, refused with a wrong one; the command line has its own client"
    )


def way_back(service: ServiceProcess, dex: Dex, person: httpx.Client) -> str:
    """Return the address to which Dex redirects a user who began to sign in and entered a password."""
    begun = person.get(f"{service.url}/session/login?next=/m/x")
    with httpx.Client(follow_redirects=True, timeout=30) as at_dex:
        page = at_dex.get(begun.headers["location"])
        at_dex.follow_redirects = False
        answer = authenticated(at_dex, page)
        while not answer.headers["location"].startswith(service.url):
            answer = at_dex.get(httpx.URL(dex.url).join(answer.headers["location"]))
    return answer.headers["location"]


def disabled(home: Home, dex: Dex) -> None:
    """Let the account end at the issuer: the session continues until the token expires, and no longer."""
    dex.forget_people()
    until(home.kept["id_token"], left=50)
    code, output = home.run("ls", "--url", home.service)
    why = f"Could not renew the token for {home.service}: the issuer no longer accepts the refresh token"
    assert (code, why in output) == (0, True), output
    until(home.kept["id_token"], left=-1)
    code, output = home.run("ls", "--url", home.service)
    assert (code, "the JWT expired" in output, "run protoslice login" in output) == (6, True, True), output
    tell("account disabled: in until the end of the token, told why it is not renewed")


def until(token: str, left: float) -> None:
    """Wait until this number of seconds is left of a token."""
    end = end_of(token)
    assert end is not None
    time.sleep(max(0.0, end.timestamp() - left - time.time()))


def tell(said: str) -> None:
    """Print that a step succeeded."""
    print(f"ok: {said}", flush=True)
