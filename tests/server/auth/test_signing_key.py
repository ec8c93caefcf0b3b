"""The service's signing key: it is the same for all replicas, and bound to the operator's secrets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TypeAlias

import psycopg
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.oidc.trusting import STORES, trust_file
from tests.server.auth.test_sessions import PEOPLE, Person, cookies, listed, signed_in
from tests.server.auth.test_signatures import DATA, signed_target
from tests.support.issuer import FakeIssuer, running_issuer
from tests.support.postgres import TestServer
from tests.support.serve import ask, open_app

from protoslice.catalog import open_database
from protoslice.database import Database, connect
from protoslice.errors import Conflict, IntegrityError, InvalidInput
from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.signatures import SigningKey
from protoslice.server.settings import read_settings


async def test_replicas_agree_on_one_key(catalogue: str) -> None:
    async with open_database(catalogue, "memory://") as one, open_database(catalogue, "memory://") as other:
        keys = await asyncio.gather(*(SigningKey(each).get() for each in (one, other) * 4))
        assert len(set(keys)) == 1
        assert len(keys[0]) == 32


async def test_key_of_a_replica_that_dies_before_its_commit_is_not_used(postgres: TestServer) -> None:
    url, lost = postgres.new_catalogue(), b"x" * 32

    async def work() -> None:
        dying, living = connect(url, "memory://"), connect(url, "memory://")
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE meta SET service_key = %s", (lost,))
            waiting = asyncio.create_task(SigningKey(living).get())
            await _until_blocked(dying)
            pid = connection.info.backend_pid
            await dying.write(lambda tx: tx.all("SELECT pg_terminate_backend(:pid)", pid=pid))
            key = await waiting
            connection.close()
        assert key != lost
        assert await dying.read(lambda tx: tx.first("SELECT service_key FROM meta")) == (key,)
        for each in (dying, living):
            await each.close()

    await asyncio.wait_for(work(), 60)


async def _until_blocked(database: Database) -> None:
    """Wait until a statement of another connection waits for a lock on a row of `meta`."""
    blocked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE meta%'"
    while await database.read(lambda tx: tx.first(blocked)) is None:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("damaged", [b"", b"short"])
async def test_damaged_key_is_refused(catalogue: str, damaged: bytes) -> None:
    async with open_database(catalogue, "memory://") as database:
        await database.write(lambda tx: tx.run("UPDATE meta SET service_key = :key", key=damaged))
        with pytest.raises(IntegrityError, match="service key"):
            await SigningKey(database).get()


SECRETS: Final = {name: name * 40 for name in "ABC"}


def given(names: str) -> dict[str, Any]:
    """Return the settings of a service with the secrets that these characters name, in this order."""
    return {"signing_secret": "\n".join(SECRETS[name] for name in names)} if names else {}


async def all_signed(app: Application, issuer: FakeIssuer, token: str) -> dict[str, str]:
    """Return everything that a service signs or seals: targets of URLs and cookies, by kind."""
    person = Person(app, issuer, Path())
    await person.begin()
    return {
        "URL of a token": await signed_target(app, token),
        "URL of a JWT": await signed_target(app, issuer.token()),
        "session of a token": cookies(await signed_in(app, token)),
        "session of a JWT": cookies(await signed_in(app, issuer.token())),
        "session of a person": cookies(await person.come_back()),
    }


@pytest.mark.parametrize(("signs", "verifies"), [("AB", "BA"), ("BA", "AB"), ("A", "CA")])
async def test_everything_signed_with_a_second_secret_is_valid(
    signs: str, verifies: str, tmp_path: Path, catalogue: str
) -> None:
    storage: dict[str, Any] = {"database": catalogue, "storage": (tmp_path / "storage").as_uri()}
    with running_issuer() as issuer:
        storage["issuers"] = trust_file(tmp_path, issuer, more=PEOPLE)
        async with closed_service(**storage, **given(signs)) as one:
            token = await token_for(one, Scope.READ, Scope.WRITE)
            put = f"{STORES}?filename=m.onnx&tag=m"
            assert (await ask(one, "PUT", put, DATA, bearer(token))).status == 201
            signed = await all_signed(one, issuer, token)
            begun = Person(one, issuer, tmp_path)
            await begun.begin()
        async with open_app(auth="tokens", **storage, **given(verifies)) as other:
            for what, each in signed.items():
                got = await (ask(other, "GET", each) if what.startswith("URL") else listed(other, each))
                assert got.status == 200, what
            begun.app = other
            assert (await begun.come_back()).status == 303
            # A URL signed in an earlier session has the first secret, so it outlives the removal of the second.
            headers = {"cookie": signed["session of a person"], "sec-fetch-site": "same-origin"}
            headers["content-type"] = "application/json"
            body = b'{"path": "/v1/stores/m/files/m.onnx"}'
            again = await ask(other, "POST", "/spaces/own/v1/sign", body, headers)
            assert again.status == 201, again.text
        async with open_app(auth="tokens", **storage, **given(verifies[0])) as last:
            renewed = await signed_target(last, token)
            assert (await ask(last, "GET", renewed)).status == 200
            url = again.text.partition("http://localhost")[2].partition('"')[0]
            assert (await ask(last, "GET", url)).status == 200
            if verifies[0] != signs[0]:
                for what, each in signed.items():
                    got = await (ask(last, "GET", each) if what.startswith("URL") else listed(last, each))
                    assert got.status == 401, what


Start: TypeAlias = Callable[[str], AbstractAsyncContextManager[Application]]


@pytest.fixture
def started(catalogue: str, tmp_path: Path) -> Start:
    """Return a function that starts a service over one catalogue with the secrets that these characters name."""
    storage = (tmp_path / "storage").as_uri()
    return lambda names: open_app(auth="tokens", database=catalogue, storage=storage, **given(names))


OUTCOMES: Final = {
    "": {"": "same", "A": "refused"},
    "A": {"A": "same", "AB": "differ", "B": "refused", "BA": "refused", "": "refused"},
    "AB": {"AB": "same", "A": "differ", "BA": "differ", "B": "refused"},
    "BA": {"AB": "differ", "B": "differ", "A": "refused", "CA": "refused"},
    "B": {"BA": "differ"},
}
"""The outcome of a start, by the running process's secrets and by the new process's secrets."""


@pytest.mark.parametrize("first", OUTCOMES)
async def test_processes_have_secrets_that_verify_what_the_others_sign(
    first: str, started: Start, catalogue: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = dict[str, str]()
    async with started(first), open_database(catalogue, "memory://"):  # the latter signs nothing, and does not count
        for second in OUTCOMES[first]:
            caplog.clear()
            try:
                async with started(second):
                    found[second] = "differ" if "PROTOSLICE_SIGNING_SECRET differs from that" in caplog.text else "same"
            except Conflict as error:
                found[second] = "refused" if "PROTOSLICE_SIGNING_SECRET" in error.message else error.message
    assert found == OUTCOMES[first]
    async with started("C"):  # an ended process does not count
        pass


async def test_process_sees_the_secrets_of_one_that_starts_at_once(postgres: TestServer, tmp_path: Path) -> None:
    place: dict[str, Any] = {"database": postgres.new_catalogue(), "storage": tmp_path.as_uri(), "auth": "tokens"}
    async with open_app(**place):
        pass  # the database exists
    with psycopg.connect(place["database"]) as first, psycopg.connect(place["database"], autocommit=True) as watch:
        row = "(id, host, pid, version, schema, seen, secrets) VALUES ('x', 'h', 1, '1', 11, %s, 'abcd')"
        first.execute(f"INSERT INTO processes {row}", (time.time_ns() // 1000,))
        second = asyncio.create_task(_refused(open_app(**place, **given("A"))))
        blocked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'LOCK%'"
        while not second.done() and watch.execute(blocked).fetchone() is None:
            await asyncio.sleep(0.01)
        first.commit()
    assert await second, "it did not wait for the other one"


async def _refused(service: AbstractAsyncContextManager[Application]) -> bool:
    try:
        async with service:
            return False
    except Conflict:
        return True


async def test_database_confirms_no_guess_of_a_secret(started: Start, catalogue: str) -> None:
    async with started("AB"):
        database = connect(catalogue, "memory://")
        rows = await database.read(lambda tx: tx.all("SELECT secrets FROM processes WHERE secrets IS NOT NULL"))
        await database.close()
    assert [len(each) for each in rows[0][0].split()] == [4, 4], "16 bits of each"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("by_file", [False, True])
def test_secrets_stand_one_a_line(end: str, by_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{SECRETS['A']}{end}{end}{SECRETS['B']}{end}"
    if by_file:
        (tmp_path / "secrets").write_text(text, newline="")
        monkeypatch.setenv("PROTOSLICE_SIGNING_SECRET_FILE", str(tmp_path / "secrets"))
    else:
        monkeypatch.setenv("PROTOSLICE_SIGNING_SECRET", text)
    assert read_settings({}).signing_secrets() == [SECRETS["A"], SECRETS["B"]]


@pytest.mark.parametrize("wrong", ["{A}\nshort", "short\n{A}", "\n\n \n", "{A}\n" + "x" * 31])
def test_each_secret_is_long_enough(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_SIGNING_SECRET", wrong.format(**SECRETS))
    with pytest.raises(InvalidInput, match="PROTOSLICE_SIGNING_SECRET: invalid value: use secrets of at least 32 char"):
        read_settings({})
