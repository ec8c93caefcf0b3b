"""Options of buckets: all known ones are taken, others refused by name, and obstore never panics."""

from __future__ import annotations

from contextlib import suppress

import pytest
from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import from_url

from protoslice.errors import InvalidInput
from protoslice.storage import open_storage
from protoslice.storage.bucket import CONNECTION, STORES, CloudStorage, sort_options

URIS = {"s3": "s3://bucket", "gs": "gs://bucket", "az": "az://container"}


@pytest.mark.parametrize(("scheme", "name"), [(scheme, name) for scheme in URIS for name in sorted(STORES[scheme])])
def test_obstore_knows_every_name_of_the_table(scheme: str, name: str) -> None:
    refused: Exception | None = None
    try:
        from_url(URIS[scheme], config={name: "1"})  # type: ignore[call-overload]
    except Exception as error:  # of the value
        refused = error
    assert not isinstance(refused, UnknownConfigurationKeyError)


@pytest.mark.parametrize("scheme", URIS)
@pytest.mark.parametrize("name", sorted(CONNECTION))
def test_options_of_connections_go_to_connections(scheme: str, name: str) -> None:
    """As options of the store they would end in a panic."""
    assert sort_options(scheme, {name: "1"}) == ({}, {name: "1"})
    with suppress(InvalidInput):  # of the value
        CloudStorage.from_uri(URIS[scheme], {name: "no such value"})


@pytest.mark.parametrize("scheme", URIS)
def test_an_option_nobody_knows_is_named_with_those_there_are(scheme: str) -> None:
    with pytest.raises(InvalidInput, match="Unknown option 'acess_key' of ") as caught:
        open_storage(URIS[scheme], {"acess_key": "hush"})
    assert all(name in str(caught.value) for name in STORES[scheme] | CONNECTION)
    assert "hush" not in str(caught.value)


def test_names_may_be_those_of_the_environment() -> None:
    assert sort_options("s3", {"AWS_REGION": "r", "aws_allow_http": "true"}) == (
        {"region": "r"},
        {"allow_http": "true"},
    )
    assert sort_options("az", {"AZURE_STORAGE_ACCOUNT_NAME": "n"}) == ({"account_name": "n"}, {})
    with pytest.raises(InvalidInput, match="'region' is given twice"):
        sort_options("s3", {"AWS_REGION": "a", "region": "b"})


@pytest.mark.parametrize(
    ("uri", "options", "unsigned"),
    [
        ("s3://bucket", {}, "true"),
        ("s3://bucket", {"endpoint": "https://example.com"}, "true"),
        ("s3://bucket", {"endpoint": "http://127.0.0.1:9"}, None),
        ("s3://bucket", {"allow_http": "true"}, None),
        ("s3://bucket", {"allow_invalid_certificates": "true"}, None),
        ("s3://bucket", {"unsigned_payload": "false"}, "false"),
        ("s3://bucket", {"AWS_UNSIGNED_PAYLOAD": "false"}, "false"),
        ("s3://bucket", {"endpoint": "http://127.0.0.1:9", "unsigned_payload": "true"}, "true"),
        ("gs://bucket", {}, None),
        ("az://container", {"account_name": "name"}, None),
    ],
)
def test_bodies_that_tls_guards_are_not_digested_for_signatures(
    uri: str, options: dict[str, str], unsigned: str | None
) -> None:
    store = CloudStorage.from_uri(uri, {"region": "r"} | options if uri.startswith("s3") else options)._store
    found = getattr(store, "config", {}).get("unsigned_payload")
    assert (None if found is None else str(found).lower()) == unsigned


def test_a_variable_of_the_operators_decides_about_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_UNSIGNED_PAYLOAD", "false")
    found = CloudStorage.from_uri("s3://bucket", {"region": "r"})._store.config  # type: ignore[union-attr]
    assert str(found.get("unsigned_payload", False)).lower() == "false"
