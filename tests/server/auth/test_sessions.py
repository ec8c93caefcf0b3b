"""Browser sessions: they begin by a token or at an issuer, and are bound to a browser, a host and an end."""

from __future__ import annotations

import json
import re
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

import pytest
from tests.server.auth.closed import closed_service, token_for
from tests.server.auth.oidc.test_verification import (
    altered,
    forgetful,
    of_own_key,
    swapped,
    trusting_anew,
    unsigned,
)
from tests.server.auth.oidc.trusting import STORES, trust_file
from tests.support.issuer import AUDIENCE, FakeIssuer, rsa, running_issuer
from tests.support.serve import Asked, ask, open_app

from protoslice.server.app import Application
from protoslice.server.auth import authenticator
from protoslice.server.auth.oidc import sign_in
from protoslice.server.auth.permissions import Scope

PEOPLE = f"login_client = '{AUDIENCE}'"
OWN = {"sec-fetch-site": "same-origin"}
JSON = {"content-type": "application/json"}
__all__ = ["forgetful"]
pytestmark = pytest.mark.usefixtures("forgetful")


def cookies(answer: Asked) -> str:
    """Return the first cookie that an answer sets, as a browser sends it."""
    return answer.headers["set-cookie"].partition(";")[0]


async def signed_in(app: Application, token: str, **more: str) -> Asked:
    """Return the answer to a token that a user typed in."""
    return await ask(app, "POST", "/session", json.dumps({"token": token}).encode(), JSON | OWN | more)


async def listed(app: Application, cookie: str, **more: str) -> Asked:
    """Return the answer to a list of stores, as the page requests it."""
    return await ask(app, "GET", STORES, headers={"cookie": cookie, **OWN, **more})


@asynccontextmanager
async def session(**more: Any) -> AsyncIterator[tuple[Application, str, str]]:
    """Open a service; yield it, a token, and the cookie of a session that the token began."""
    async with closed_service(**more) as app:
        token = await token_for(app, Scope.READ, Scope.WRITE, Scope.DELETE)
        begun = await signed_in(app, token)
        assert begun.status == 201, begun.text
        yield app, token, cookies(begun)


async def test_a_typed_token_begins_a_session_whose_cookie_does_not_hold_it() -> None:
    async with session() as (app, token, cookie):
        begun = await signed_in(app, token)
        said = begun.headers["set-cookie"]
        assert "; Path=/; Max-Age=28" in said
        assert said.endswith("; HttpOnly; SameSite=Strict")
        assert token[14:40] not in said
        assert "no-store" in begun.headers["cache-control"]
        assert (await listed(app, cookie)).status == 200
        told = json.loads((await ask(app, "GET", "/session", headers={"cookie": cookie, **OWN})).body)
        assert (told["asks"], told["name"], told["issuer"]) == (True, "t", None)
        assert told["expires"] > time.strftime("%Y-%m-%dT%H:%M", time.gmtime())
        nobody = json.loads((await ask(app, "GET", "/session")).body)
        assert (nobody["name"], nobody["expires"]) == (None, None)


async def test_a_wrong_token_begins_none_and_a_short_one_ends_early(app: Application) -> None:
    for wrong in ("psl_no", "x" * 1000, "a.b.c"):
        refused = await signed_in(app, wrong)
        assert refused.status == 401
        assert "set-cookie" not in refused.headers
    brief = await token_for(app, Scope.READ, seconds=60)
    age = re.search(r"Max-Age=(\d+)", (await signed_in(app, brief)).headers["set-cookie"])
    assert age is not None
    assert int(age[1]) <= 60


async def test_over_tls_a_cookie_is_of_this_host_alone() -> None:
    async with session(trusted_proxies=("192.0.2.1",)) as (app, token, _cookie):
        begun = await signed_in(app, token, **{"x-forwarded-proto": "https"})
        said = begun.headers["set-cookie"]
        assert said.startswith("__Host-protoslice-session=")
        assert said.endswith("; HttpOnly; SameSite=Strict; Secure")
        safe = cookies(begun)
        assert (await listed(app, safe, **{"x-forwarded-proto": "https"})).status == 200
        # Another host of the domain may have set a cookie with a plain name.
        assert (await listed(app, safe.removeprefix("__Host-"), **{"x-forwarded-proto": "https"})).status == 401
        assert (await listed(app, safe)).status == 401


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("GET", {"sec-fetch-site": "none"}, 200),
        ("GET", {"sec-fetch-site": "same-site"}, 401),
        ("GET", {"sec-fetch-site": "cross-site"}, 401),
        ("GET", {"origin": "https://evil.example"}, 401),
        ("DELETE", {"sec-fetch-site": "same-origin"}, 404),
        ("DELETE", {"origin": "http://localhost"}, 404),
        ("DELETE", {}, 401),
        ("DELETE", {"sec-fetch-site": "cross-site"}, 401),
        ("DELETE", {"sec-fetch-site": "same-site"}, 401),
        ("DELETE", {"origin": "https://evil.example"}, 401),
        ("DELETE", {"origin": "null"}, 401),
    ],
)
async def test_a_cookie_counts_for_own_pages_alone(method: str, headers: dict[str, str], status: int) -> None:
    # Pages of other origins may write here with their token, but not with a user's cookie.
    async with session(cors_origins=("*",)) as (app, _token, cookie):
        target = STORES if method == "GET" else f"{STORES}/{'0' * 64}"
        got = await ask(app, method, target, headers={"cookie": cookie, **headers})
        assert got.status == status, got.text


BENT: dict[str, Callable[[str], str]] = {
    "another proof": lambda cookie: cookie[:-1] + ("0" if cookie[-1] != "0" else "1"),
    "a later end": lambda cookie: cookie.replace("=", "=9", 1),
    "another signer": lambda cookie: re.sub(r"\.(.)", lambda found: ".0" if found[1] != "0" else ".1", cookie, count=1),
    "no proof": lambda cookie: cookie.rpartition(".")[0],
    "two of one name": lambda cookie: f"{cookie}; protoslice-session=1.0123456789.{'0' * 64}",
    "planted in front": lambda cookie: f"protoslice-session=x; {cookie}",
    "quoted": lambda cookie: cookie.replace("=", '="') + '"',
    "another name": lambda cookie: cookie.replace("-session", "-login"),
    "a longer name": lambda cookie: "x" + cookie,
    "empty": lambda cookie: "protoslice-session=",
}


@pytest.mark.parametrize("name", BENT)
async def test_no_bent_cookie_enters(name: str) -> None:
    async with session() as (app, _token, cookie):
        for _ in range(2):
            assert (await listed(app, BENT[name](cookie))).status == 401


async def test_a_session_is_of_its_host_and_of_its_service() -> None:
    async with session() as (app, _token, cookie):
        assert (await listed(app, cookie, host="127.0.0.1")).status == 401
        assert (await listed(app, cookie, host="LOCALHOST")).status == 200
        assert (await ask(app, "GET", "/spaces/other/v1/stores", headers={"cookie": cookie, **OWN})).status == 404
        async with open_app(auth="tokens") as other:
            assert (await listed(other, cookie)).status == 401


async def test_a_session_ends_with_its_token_and_by_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "KNOWN_SECONDS", 0.0)
    async with session() as (app, token, cookie):
        end = int(cookie.partition("=")[2].partition(".")[0])
        with monkeypatch.context() as later:
            later.setattr(time, "time", lambda: end - 0.5)
            assert (await listed(app, cookie)).status == 200
            later.setattr(time, "time", lambda: float(end))
            assert (await listed(app, cookie)).status == 401
        await app.services.authenticator.tokens.revoke(token[4:14], "own")
        assert (await listed(app, cookie)).status == 401


async def test_signing_out_removes_the_cookie_and_what_the_browser_keeps() -> None:
    async with session() as (app, _token, cookie):
        ended = await ask(app, "DELETE", "/session", headers={"cookie": cookie, **OWN})
        assert ended.status == 204
        assert ended.headers["set-cookie"].startswith("protoslice-session=; Path=/; Max-Age=0;")
        assert ended.headers["clear-site-data"] == '"cache"'


async def test_a_page_of_another_site_signs_nobody_in() -> None:
    async with closed_service(cors_origins=("*",)) as app:
        token = await token_for(app, Scope.READ)
        for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
                        {"sec-fetch-site": "", "origin": "https://evil.example"}):  # fmt: skip
            refused = await signed_in(app, token, **headers)
            assert refused.status == 403, refused.text
            assert "set-cookie" not in refused.headers


async def test_credentials_in_a_header_go_before_a_cookie() -> None:
    async with session() as (app, _token, cookie):
        assert (await listed(app, cookie, authorization="Bearer psl_wrong")).status == 401


async def test_scripts_get_no_challenge_that_opens_a_dialog() -> None:
    async with session() as (app, _token, _cookie):
        told = await ask(app, "GET", STORES, headers=OWN | {"sec-fetch-dest": "empty"})
        assert (told.status, "Basic" in told.headers["www-authenticate"]) == (401, False)
        assert "Basic" in (await ask(app, "GET", STORES)).headers["www-authenticate"]


# Users at an issuer


class Person:
    """A user's browser at a service that trusts an issuer."""

    def __init__(self, app: Application, issuer: FakeIssuer, folder: Path) -> None:
        self.app, self.issuer, self.folder = app, issuer, folder
        self.asked: dict[str, str] = {}
        self.cookie = ""

    async def begin(self, following: str = "/m/x?tag=1") -> Asked:
        """Begin to sign in; the request to the issuer is kept."""
        got = await ask(self.app, "GET", f"/session/login?next={quote(following, safe='')}")
        if got.status == 303:
            self.asked = dict(parse_qsl(urlsplit(got.headers["location"]).query))
            self.cookie = cookies(got)
        return got

    async def come_back(self, cookie: str | None = None, token: str | None = None, **changed: str | None) -> Asked:
        """Return from the issuer with a code, which the issuer exchanges for an id token."""
        given = self.issuer.token(nonce=self.asked.get("nonce")) if token is None else token
        self.issuer.answers = [(200, {"id_token": given, "access_token": "x", "token_type": "bearer"})]
        said = {"code": "c0de", "state": self.asked.get("state", ""), **changed}
        query = "&".join(f"{name}={quote(value)}" for name, value in said.items() if value is not None)
        headers = {"cookie": self.cookie if cookie is None else cookie, "sec-fetch-site": "cross-site"}
        return await ask(self.app, "GET", f"/session/callback?{query}", headers=headers)


@asynccontextmanager
async def visited(
    folder: Path, people: str = PEOPLE, audience: Sequence[str] = (AUDIENCE,), **more: Any
) -> AsyncIterator[Person]:
    """Open a service; yield a user who has begun to sign in at an issuer of the trust file."""
    with running_issuer() as issuer:
        async with closed_service(issuers=trust_file(folder, issuer, more=people, audience=audience), **more) as app:
            person = Person(app, issuer, folder)
            await person.begin()
            yield person


def session_in(answer: Asked) -> str:
    """Return the cookie of the session that a sign-in begins."""
    return answer.headers["set-cookie"].partition(";")[0]


async def test_a_person_signs_in_at_the_issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with visited(tmp_path) as person:
        begun = await person.begin()
        asked = person.asked
        assert begun.headers["location"].startswith(f"{person.issuer.url}/auth?")
        assert "; HttpOnly; SameSite=Lax" in begun.headers["set-cookie"]
        assert (asked["client_id"], asked["code_challenge_method"]) == (AUDIENCE, "S256")
        assert (asked["redirect_uri"], asked["scope"]) == ("http://localhost/session/callback", "openid profile email")
        assert not any(secret in begun.headers["set-cookie"] for secret in (asked["state"], asked["nonce"]))
        end = int(time.time()) + 50
        got = await person.come_back(token=person.issuer.token(nonce=asked["nonce"], exp=end))
        assert (got.status, got.headers["location"]) == (303, "/m/x?tag=1"), got.text
        path, form = person.issuer.forms[-1]
        assert (path, form["code"], form["client_id"]) == ("/token", "c0de", AUDIENCE)
        assert len(form["code_verifier"]) == 43
        cookie = cookies(got)
        assert cookie.startswith(f"protoslice-session={end}.")
        assert (await listed(person.app, cookie)).status == 200
        assert (await ask(person.app, "GET", "/session", headers={"cookie": cookie, **OWN})).status == 200
        monkeypatch.setattr(time, "time", lambda: float(end))
        assert (await listed(person.app, cookie)).status == 401


PLACES = (
    "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "evil.example", "/\t/evil.example",
    "/\n//evil.example", "/ /evil", "javascript:alert(1)", "", "/ü", "///evil.example", "/\\/evil.example",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
async def test_nobody_is_sent_on_to_another_site(tmp_path: Path, place: str) -> None:
    async with visited(tmp_path) as person:
        await person.begin(place)
        assert (await person.come_back()).headers["location"] == "/"


async def refused(person: Person, answer: Asked) -> None:
    """Check that a sign-in has failed, without a session."""
    assert answer.status in {400, 502}, answer
    assert "protoslice-session=" not in answer.headers.get("set-cookie", "")
    assert "Not signed in" in answer.text


HOSTILE: dict[str, Callable[[Person], Awaitable[Asked]]] = {
    "another state": lambda person: person.come_back(state="x" * 43),
    "no state": lambda person: person.come_back(state=None),
    "no cookie (the link of an attacker)": lambda person: person.come_back(cookie=""),
    "the cookie of another browser": lambda person: _with_cookie_of_another(person),
    "an altered cookie": lambda person: person.come_back(cookie=person.cookie[:-2] + "AA"),
    "two cookies": lambda person: person.come_back(cookie=f"{person.cookie}; {person.cookie}"),
    "a session for a cookie": lambda person: person.come_back(cookie=person.cookie.replace("=", "=9.0123456789.", 1)),
    "no code": lambda person: person.come_back(code=None),
    "a code with a line": lambda person: person.come_back(code="a\nb"),
    "a refusal": lambda person: person.come_back(code=None, error="access_denied"),
    "a refusal with markup": lambda person: person.come_back(code=None, error="<script>alert(1)</script>"),
    "a code of another issuer": lambda person: person.come_back(iss="https://other.example"),
    "another nonce": lambda person: person.come_back(token=person.issuer.token(nonce="other")),
    "no nonce": lambda person: person.come_back(token=person.issuer.token()),
    "a nonce that is a list": lambda person: person.come_back(token=_token(person, nonce=[person.asked["nonce"]])),
    "alg none": lambda person: person.come_back(token=unsigned(person.issuer)),
    "HS256": lambda person: person.come_back(token=swapped(person.issuer)),
    "a key of its own": lambda person: person.come_back(token=of_own_key(person.issuer)),
    "altered": lambda person: person.come_back(token=altered(person.issuer)),
    "another audience": lambda person: person.come_back(token=_token(person, aud="another")),
    "another authorized party": lambda person: person.come_back(token=_token(person, aud=[AUDIENCE, "b"], azp="b")),
    "another issuer": lambda person: person.come_back(token=_token(person, iss="https://other.example")),
    "expired": lambda person: person.come_back(token=_token(person, exp=int(time.time()) - 1)),
    "an opaque token": lambda person: person.come_back(token="opaque"),
    "a token of the service": lambda person: _typed(person),
}


def _token(person: Person, **claims: Any) -> str:
    return person.issuer.token(**{"nonce": person.asked["nonce"], **claims})


async def _with_cookie_of_another(person: Person) -> Asked:
    own = person.asked
    await person.begin()  # another user's
    person.asked = own
    return await person.come_back()


async def _typed(person: Person) -> Asked:
    return await person.come_back(token=await token_for(person.app, Scope.ADMIN))


async def test_a_token_for_another_client_of_the_service_signs_nobody_in(tmp_path: Path) -> None:
    async with visited(tmp_path, "login_client = 'page'", audience=[AUDIENCE, "page"]) as person:
        await refused(person, await person.come_back(token=_token(person, aud=AUDIENCE)))
        await person.begin()
        assert (await person.come_back(token=_token(person, aud=[AUDIENCE, "page"]))).status == 303


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_other_answer_signs_anybody_in(tmp_path: Path, name: str) -> None:
    async with visited(tmp_path) as person:
        answer = await HOSTILE[name](person)
        await refused(person, answer)
        assert "<script>" not in answer.text


BROKEN: dict[str, list[tuple[int, Any]]] = {
    "gigabytes": [(200, b"[" * (1 << 20))],
    "a code used before": [(400, {"error": "invalid_grant"})],
    "a redirect": [(302, {"id_token": "x"})],
    "a list": [(200, [])],
    "no id token": [(200, {"access_token": "x"})],
    "a number": [(200, {"id_token": 1})],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_issuer_that_answers_badly_signs_nobody_in(tmp_path: Path, name: str) -> None:
    async with visited(tmp_path) as person:
        person.issuer.answers = list(BROKEN[name])
        target = f"/session/callback?code=c0de&state={person.asked['state']}"
        await refused(person, await ask(person.app, "GET", target, headers={"cookie": person.cookie}))
        assert "/elsewhere" not in person.issuer.fetches


async def test_a_sign_in_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with visited(tmp_path) as person:
        late = time.time() + sign_in.BEGUN_SECONDS
        monkeypatch.setattr(time, "time", lambda: late)
        await refused(person, await person.come_back())
        assert person.issuer.forms == []  # nothing is sent to the issuer


async def test_an_issuer_that_is_away_is_told(tmp_path: Path) -> None:
    with running_issuer() as issuer:
        async with closed_service(issuers=trust_file(tmp_path, issuer, more=PEOPLE)) as app:
            issuer.away = True
            person = Person(app, issuer, tmp_path)
            got = await person.begin()
            assert (got.status, "cannot be reached" in got.text) == (502, True)
            issuer.away = False
            assert (await person.begin()).status == 303


async def test_a_session_of_a_person_ends_with_the_rule_and_the_key(tmp_path: Path) -> None:
    async with visited(tmp_path) as person:
        cookie = cookies(await person.come_back())
        assert (await listed(person.app, cookie)).status == 200
        other = "claims = { sub = 'other' }\nspace = 'own'\nscopes = ['read']"
        await trusting_anew(person.app, tmp_path, person.issuer, rules=[other], more=PEOPLE)
        assert (await listed(person.app, cookie)).status == 404
        await trusting_anew(person.app, tmp_path, person.issuer, more=PEOPLE)
        assert (await listed(person.app, cookie)).status == 200
        person.issuer.keys = [rsa("second")]
        await trusting_anew(person.app, tmp_path, person.issuer, more=PEOPLE)
        assert (await listed(person.app, cookie)).status == 401


async def test_the_way_to_sign_in_is_told_to_anybody(tmp_path: Path, app: Application) -> None:
    async with visited(tmp_path) as person:
        told = json.loads((await ask(person.app, "GET", "/.well-known/oauth-protected-resource")).body)
        assert told == {
            "resource": "http://localhost", "authorization_servers": [person.issuer.url], "client_id": AUDIENCE,
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["openid", "profile", "email", "offline_access"],
        }  # fmt: skip
    for path in ("/.well-known/oauth-protected-resource", "/session/login", "/session/callback"):
        assert (await ask(app, "GET", path)).status == 404


async def test_a_client_that_keeps_a_secret_sends_it_to_the_issuer_alone(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a b:%\n")
    kept = f"{PEOPLE}\nlogin_secret_file = '{tmp_path / 'secret'}'"
    async with visited(tmp_path, kept) as person:
        assert (await person.come_back()).status == 303
        sent = b64decode(str(person.issuer.logins[-1]).removeprefix("Basic ")).decode()
        assert sent == f"{quote_plus(AUDIENCE)}:a+b%3A%25"
        assert person.issuer.forms[-1][1].keys() == {
            "grant_type", "code", "redirect_uri", "client_id", "code_verifier"
        }  # fmt: skip
        told = await ask(person.app, "GET", "/.well-known/oauth-protected-resource")
        assert (told.status, "no `device_client`" in told.text) == (404, True), "the command line keeps no secret"
    async with visited(tmp_path, f"{PEOPLE}\ndevice_client = '{AUDIENCE}'") as person:
        told = await ask(person.app, "GET", "/.well-known/oauth-protected-resource")
        assert json.loads(told.body)["client_id"] == AUDIENCE
        assert (await person.come_back()).status == 303
        assert person.issuer.logins == [None]
