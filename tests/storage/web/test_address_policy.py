"""Address policy: prefixes are compared by segment, and addresses refused by their kind."""

import asyncio
import socket
from ipaddress import ip_address
from pathlib import Path

import pytest

from protoslice.errors import InvalidInput, NotFound, StorageDenied, StorageUnavailable
from protoslice.storage import FileStorage, ObjectKey
from protoslice.storage.sources import allowed, open_source
from protoslice.storage.web_guard import Networks, is_private, resolve

PUBLIC = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
PRIVATE = [
    "0.0.0.0", "10.0.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1", "192.168.1.1", "100.64.0.1",
    "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses(text: str) -> None:
    assert not is_private(ip_address(text))


@pytest.mark.parametrize("text", PRIVATE)
def test_addresses_that_are_not_public_whatever_wraps_them(text: str) -> None:
    assert is_private(ip_address(text))


def test_listed_networks_may_be_visited() -> None:
    networks = Networks("10.1.0.0/16", "fd00::/8")
    assert networks.permit(ip_address("10.1.2.3"))
    assert networks.permit(ip_address("fd00::1"))
    assert not networks.permit(ip_address("10.2.0.1"))
    assert not networks.permit(ip_address("::ffff:10.1.2.3")), "listed as it stands"
    with pytest.raises(InvalidInput):
        Networks("10.1.0.1/16")


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "::1", "0"]
)
def test_no_spelling_of_this_machine_gets_by(host: str) -> None:
    with pytest.raises((StorageDenied, StorageUnavailable)):
        asyncio.run(resolve(host, 80, Networks()))


def test_one_address_that_is_not_public_spoils_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, 80)) for text in ("8.8.8.8", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with pytest.raises(StorageDenied):
        asyncio.run(resolve("mixed.example", 80, Networks()))
    assert asyncio.run(resolve("mixed.example", 80, Networks("10.0.0.0/8"))) == ["8.8.8.8", "10.0.0.1"]


def test_unknown_hosts() -> None:
    for host in ("no-such-host.invalid", "a" * 64 + ".example", "", "bad host"):
        with pytest.raises((StorageUnavailable, StorageDenied)):
            asyncio.run(resolve(host, 80, Networks()))


PREFIXES = [
    "s3://models/public",
    "s3://all",
    "https://models.example.org/files/",
    "file:///srv/models",
    "s3://models/public/deep",
]


@pytest.mark.parametrize(
    ("uri", "root", "key"),
    [
        ("s3://models/public/a.onnx", "s3://models/public", "a.onnx"),
        ("S3://models/public/x/y 1.pb", "s3://models/public", "x/y 1.pb"),
        ("s3://models/public/deep/a", "s3://models/public/deep", "a"),
        ("s3://models/public/%2e%2e/a", "s3://models/public", "%2e%2e/a"),
        ("s3://all/a?b#c", "s3://all", "a?b#c"),
        ("https://Models.Example.ORG:443/files/a%20b", "https://models.example.org/files/", "a b"),
        ("https://models.example.org/%66iles/a", "https://models.example.org/files/", "a"),
        ("file:///srv/models/x/a.pb", "file:///srv/models", "x/a.pb"),
        ("file://localhost/srv/models/a", "file:///srv/models", "a"),
    ],
)
def test_what_lies_under_a_prefix_is_allowed(uri: str, root: str, key: str) -> None:
    found = allowed(uri, PREFIXES)
    assert (found.root, found.key) == (root, ObjectKey(key))
    assert allowed(found.uri, PREFIXES) == found


@pytest.mark.parametrize(
    "uri",
    [
        "s3://models/private/a", "s3://models/publicity/a", "s3://models/public", "s3://Models/public/a", "s3://other/public/a",
        "https://models.example.org/other/a", "http://models.example.org/files/a", "https://models.example.org:444/files/a",
        "https://models.example.org.evil.example/files/a", "https://evil.example/models.example.org/files/a",
        "https://models.example.org./files/a", "file:///srv/a", "file:///srv/models2/a", "file:///etc/passwd", "gs://all/a",
    ],
)  # fmt: skip
def test_what_does_not_is_denied(uri: str) -> None:
    with pytest.raises(StorageDenied):
        allowed(uri, PREFIXES)


@pytest.mark.parametrize(
    "uri",
    [
        "", "a.onnx", "//models/public/a", "s3:models/public/a", "s3://models/public/../private/a", "s3://models/public//a",
        "s3://models/public/", "s3://models/public/./a", "s3://user:secret@models/public/a", "s3://models/public/a\n",
        "https://models.example.org/files/..%2fa", "https://models.example.org/files/%2e%2e/a", "https://models.example.org/files/%2e/a",
        "https://models.example.org/files/a?x=1", "https://models.example.org/files/a#x", "https://models.example.org/files/%ff",
        "https://models.example.org/files/%00", "https://models.example.org/files/a\\b", "https://models.example.org/files/%5c",
        "https://user@models.example.org/files/a", "https://models.example.org@evil.example/files/a", "https:///files/a",
        "https://models.ex\u0430mple.org/files/a", "https://[::1/files/a", "https://models.example.org:x/files/a",
        "file://host/srv/models/a", "file:///srv/models/../a", "file:///srv/models/%2e%2e/a", "file://srv/models/a",
    ],
)  # fmt: skip
def test_what_is_no_clean_uri_is_refused(uri: str) -> None:
    with pytest.raises(InvalidInput):
        allowed(uri, PREFIXES)


def test_an_empty_list_allows_nothing() -> None:
    with pytest.raises(StorageDenied):
        allowed("https://models.example.org/a", [])


def test_a_file_prefix_cannot_be_left_by_links(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "models" / "folder").symlink_to(tmp_path)

    async def work() -> None:
        for name in ("link", "folder/secret"):
            source = allowed(f"file://{tmp_path}/models/{name}", [f"file://{tmp_path}/models"])
            async with open_source(source.root) as storage:
                assert isinstance(storage, FileStorage)
                with pytest.raises((StorageDenied, NotFound)):
                    await storage.stat(source.key)

    asyncio.run(work())
    with pytest.raises(NotFound):
        open_source(f"file://{tmp_path}/missing")
    assert not (tmp_path / "missing").exists()
