"""The OCI distribution API over a real socket: the requests of oras, skopeo and docker, and harmful ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.support.serve import LiveServer
from tests.support.stores import onnx, opened

from protoslice.artifacts import ArtifactRepository, Digest, RepositoryName, StoredManifest
from protoslice.storage import MemoryStorage

Serving = Callable[..., AbstractContextManager[LiveServer]]
GOLDEN = Path(__file__).parents[2] / "golden/models"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BASE = "/v2/team/resnet"


def digest_of(data: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def push(client: httpx.Client, data: bytes, base: str = BASE) -> str:
    """Push a blob as oras does, by a POST and a PUT of the whole blob; return its digest."""
    location = client.post(f"{base}/blobs/uploads/").headers["location"]
    put = client.put(location, params={"digest": digest_of(data)}, content=data)
    assert put.status_code == 201, put.text
    return digest_of(data)


def descriptor(data: bytes, title: str | None = None, **more: Any) -> dict[str, Any]:
    annotations = {"annotations": {"org.opencontainers.image.title": title}} if title else {}
    found = {"mediaType": "application/octet-stream", "digest": digest_of(data), "size": len(data)}
    return found | annotations | more


def put_manifest(client: httpx.Client, ref: str, base: str = BASE, **about: Any) -> httpx.Response:
    data = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, **about}).encode()
    return client.put(f"{base}/manifests/{ref}", content=data, headers={"content-type": MANIFEST})


def code_of(answer: httpx.Response) -> str:
    code: str = answer.json()["errors"][0]["code"]
    return code


def test_a_pushed_model_comes_back_and_is_one_store_that_can_be_looked_into(client: httpx.Client) -> None:
    model, config = onnx(5000, 70_000), b'{"of": "a model"}'
    layers = [descriptor(model, "net/model.onnx"), descriptor(config, "config.json")]
    for data in (model, config, b"{}"):
        push(client, data)
    put = put_manifest(client, "v1", config=descriptor(b"{}"), layers=layers)
    assert put.status_code == 201

    got = client.get(f"{BASE}/manifests/v1", headers={"accept": MANIFEST})
    assert got.headers["docker-content-digest"] == put.headers["docker-content-digest"] == digest_of(got.content)
    assert got.headers["content-type"] == MANIFEST
    assert client.get(f"{BASE}/blobs/{digest_of(model)}").content == model
    part = client.get(f"{BASE}/blobs/{digest_of(model)}", headers={"range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, model[10:20])
    assert client.get(f"{BASE}/tags/list").json() == {"name": "team/resnet", "tags": ["v1"]}

    store = client.get(f"/v1/stores/{got.headers['protoslice-store']}").json()
    assert store["type"] == "onnx.ModelProto"
    assert {file["path"] for file in store["files"]} == {
        "net/model.onnx",
        "config.json",
        f"blobs/sha256/{digest_of(b'{}').removeprefix('sha256:')}",
    }


def test_a_second_version_is_a_whole_store_that_shares_what_is_old(client: httpx.Client) -> None:
    base = "/v2/team/versions"
    old, first, second = onnx(900, 3 << 20), b"first", b"second"
    for data in (old, first, second):
        push(client, data, base)
    for tag, data in (("1", first), ("2", second)):
        put = put_manifest(client, tag, base, layers=[descriptor(old, "model.onnx"), descriptor(data, "README")])
        assert put.status_code == 201, put.text
    store = put.headers["protoslice-store"]
    assert client.get(f"/v1/stores/{store}/files/README").content == second
    assert client.get(f"/v1/stores/{store}/files/model.onnx").content == old


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
@pytest.mark.parametrize("cuts", [(0,), (3,), (3, 5)])
def test_a_blob_is_sent_in_parts(client: httpx.Client, algorithm: str, cuts: tuple[int, ...]) -> None:
    data = b"in several parts, " + algorithm.encode() + repr(cuts).encode()
    location = client.post(f"{BASE}/blobs/uploads/").headers["location"]
    ends = [*cuts, len(data)]
    for start, end in zip([0, *cuts], ends[:-1], strict=False):
        sent = client.patch(
            location, content=data[start:end], headers={"content-range": f"{start}-{end - 1}"} if end else {}
        )
        assert sent.status_code == 202, sent.text
        assert sent.headers["range"] == f"0-{max(0, end - 1)}"
    asked = client.get(location)
    assert (asked.status_code, asked.headers["range"]) == (204, f"0-{max(0, cuts[-1] - 1)}")
    done = client.put(location, params={"digest": digest_of(data, algorithm)}, content=data[cuts[-1] :])
    assert done.status_code == 201, done.text
    assert client.get(done.headers["location"]).content == data


@pytest.mark.parametrize("limits", [{"max_uploads": 1}, {"max_uploads_per_client": 1}], ids=["all", "client"])
def test_too_many_uploads_are_refused_in_the_words_of_the_protocol(serving: Serving, limits: dict[str, int]) -> None:
    data = bytes(100_000)
    with serving(upload_wait_seconds=0, **limits) as live, httpx.Client(base_url=live.url) as client:
        held, other = (client.post("/v2/a/b/blobs/uploads/").headers["location"] for _ in range(2))
        with live.connect() as connection:
            head = f"PATCH {held} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
            connection.sendall(head.encode() + data[:9])
            assert any("protoslice_open_uploads 1.0" in client.get("/metrics").text for _ in range(1000))
            answer = client.patch(other, content=data)
            assert answer.status_code == 429
            (error,) = answer.json()["errors"]
            assert error["code"] == "TOOMANYREQUESTS"
            assert "1 concurrent uploads" in error["message"]
            assert int(answer.headers["retry-after"]) > 0


def test_a_part_out_of_order_is_refused_and_nothing_is_lost(client: httpx.Client) -> None:
    location = client.post(f"{BASE}/blobs/uploads/").headers["location"]
    client.patch(location, content=b"abc", headers={"content-range": "0-2"})
    for wrong in ("4-6", "0-2", "3-9", "3-2"):
        answer = client.patch(location, content=b"def", headers={"content-range": wrong})
        assert (answer.status_code, answer.headers["range"]) == (416, "0-2")
    assert client.get(location).headers["range"] == "0-2"


@pytest.mark.parametrize("begin", [b"", b"ab"])
def test_bytes_of_another_digest_are_not_kept(client: httpx.Client, begin: bytes) -> None:
    location = client.post(f"{BASE}/blobs/uploads/").headers["location"]
    if begin:
        client.patch(location, content=begin)
    wrong = digest_of(b"something else")
    answer = client.put(location, params={"digest": wrong}, content=b"cd")
    assert (answer.status_code, code_of(answer)) == (400, "DIGEST_INVALID")
    assert client.head(f"{BASE}/blobs/{wrong}").status_code == 404
    assert code_of(client.get(location)) == "BLOB_UPLOAD_UNKNOWN"


def test_an_upload_belongs_to_its_repository(client: httpx.Client) -> None:
    location = client.post(f"{BASE}/blobs/uploads/").headers["location"]
    other = location.replace("resnet", "other")
    for answer in (client.get(other), client.patch(other, content=b"x"), client.delete(other)):
        assert (answer.status_code, code_of(answer)) == (404, "BLOB_UPLOAD_UNKNOWN")
    assert client.delete(location).status_code == 204
    assert client.get(location).status_code == 404


def test_a_blob_is_of_its_repository_until_it_is_mounted(client: httpx.Client) -> None:
    digest = push(client, b"to be mounted")
    other = "/v2/another/one"
    assert code_of(client.get(f"{other}/blobs/{digest}")) == "BLOB_UNKNOWN"
    put = put_manifest(client, "v1", other, layers=[descriptor(b"to be mounted")])
    assert (put.status_code, "protoslice-store" in put.headers) == (201, False)
    assert put.headers["warning"] == f'299 - "1 blobs were never uploaded, such as {digest}"'
    assert code_of(client.get(f"{other}/blobs/{digest}")) == "BLOB_UNKNOWN"
    mounted = client.post(f"{other}/blobs/uploads/", params={"mount": digest, "from": "team/resnet"})
    assert mounted.status_code == 201
    assert client.get(f"{other}/blobs/{digest}").content == b"to be mounted"
    unknown = client.post(f"{other}/blobs/uploads/", params={"mount": digest_of(b"nothing"), "from": "team/resnet"})
    assert unknown.status_code == 202


@pytest.mark.parametrize("source", ["library/", "", "Upper", "../x", "a" * 300])
def test_a_blob_that_cannot_be_mounted_is_uploaded(client: httpx.Client, source: str) -> None:
    query = {"mount": digest_of(b"mounted by ollama"), "from": source}
    begun = client.post("/v2/ollama/mount/blobs/uploads/", params=query)
    assert begun.status_code == 202, begun.text
    put = client.put(begun.headers["location"], params={"digest": query["mount"]}, content=b"mounted by ollama")
    assert put.status_code == 201


def test_what_is_deleted_is_gone_at_once(client: httpx.Client) -> None:
    base = "/v2/team/gone"
    digest = push(client, b"soon gone", base)
    put = put_manifest(client, "a", base, layers=[descriptor(b"soon gone")])
    manifest = put.headers["docker-content-digest"]
    client.put(
        f"{base}/manifests/b", content=client.get(f"{base}/manifests/a").content, headers={"content-type": MANIFEST}
    )
    assert client.delete(f"{base}/manifests/a").status_code == 202
    assert client.get(f"{base}/tags/list").json()["tags"] == ["b"]
    assert client.delete(f"{base}/manifests/{manifest}").status_code == 202
    assert client.get(f"{base}/tags/list").json()["tags"] == []
    for answer in (client.get(f"{base}/manifests/b"), client.delete(f"{base}/manifests/{manifest}")):
        assert (answer.status_code, code_of(answer)) == (404, "MANIFEST_UNKNOWN")
    assert client.delete(f"{base}/blobs/{digest}").status_code == 202
    assert client.get(f"{base}/blobs/{digest}").status_code == 404
    assert client.delete(f"{base}/blobs/{digest}").status_code == 404


def test_tags_come_in_pages(client: httpx.Client) -> None:
    base = "/v2/team/paged"
    for tag in ("b", "A", "_", "10", "9"):
        assert put_manifest(client, tag, base, layers=[]).status_code == 201
    seen, url = [], f"{base}/tags/list?n=2"
    for _ in range(3):
        answer = client.get(url)
        seen += answer.json()["tags"]
        url = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
    assert (seen, url) == (sorted(("b", "A", "_", "10", "9")), "")
    assert client.get(f"{base}/tags/list?n=0").json()["tags"] == []


def test_referrers_are_listed_and_filtered(client: httpx.Client) -> None:
    base = "/v2/team/signed"
    subject = put_manifest(client, "v1", base, layers=[]).headers["docker-content-digest"]
    for kind in ("signature", "sbom"):
        about = {"artifactType": f"application/{kind}", "subject": {"digest": subject}, "annotations": {"of": kind}}
        assert put_manifest(client, kind, base, layers=[], **about).headers["oci-subject"] == subject
    found = client.get(f"{base}/referrers/{subject}").json()["manifests"]
    assert {each["artifactType"]: each["annotations"] for each in found} == {
        "application/signature": {"of": "signature"},
        "application/sbom": {"of": "sbom"},
    }
    filtered = client.get(f"{base}/referrers/{subject}", params={"artifactType": "application/sbom"})
    assert filtered.headers["oci-filters-applied"] == "artifactType"
    assert [each["artifactType"] for each in filtered.json()["manifests"]] == ["application/sbom"]
    assert client.get(f"{base}/referrers/{digest_of(b'nobody')}").json()["manifests"] == []
    client.delete(f"{base}/manifests/{found[0]['digest']}")
    assert len(client.get(f"{base}/referrers/{subject}").json()["manifests"]) == 1


def test_repositories_are_listed_by_name(client: httpx.Client) -> None:
    for name in ("cat", "cat-a", "cat/a", "cat0"):
        assert put_manifest(client, "v", f"/v2/{name}", layers=[]).status_code == 201
    found, url = list[str](), "/v2/_catalog?n=2"
    while url:
        answer = client.get(url)
        found += answer.json()["repositories"]
        url = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
    # The order is that of quoted names, in which a slash is "=2F".
    assert [name for name in found if name.startswith("cat")] == ["cat", "cat-a", "cat/a", "cat0"]
    assert len(found) == len(set(found))


def test_what_a_manifest_names_may_come_later_or_never(client: httpx.Client) -> None:
    base, here, later = "/v2/team/sparse", b"sent before", b"sent later"
    push(client, here, base)
    put = put_manifest(client, "v1", base, layers=[descriptor(here, "here"), descriptor(later, "later")])
    assert put.status_code == 201
    assert digest_of(later) in put.headers["warning"]
    files = client.get(f"/v1/stores/{put.headers['protoslice-store']}").json()["files"]
    assert [file["path"] for file in files] == ["here"]
    push(client, later, base)
    assert client.get(f"{base}/blobs/{digest_of(later)}").content == later
    put = put_manifest(client, "v1", base, layers=[descriptor(here, "here"), descriptor(later, "later")])
    assert "warning" not in put.headers
    files = client.get(f"/v1/stores/{put.headers['protoslice-store']}").json()["files"]
    assert [file["path"] for file in files] == ["here", "later"]
    index = put_manifest(client, "index", base, manifests=[{"digest": "sha256:" + "0" * 64}])
    assert (index.status_code, "sha256:000" in index.headers["warning"]) == (201, True)


@pytest.mark.parametrize(
    ("about", "code"),
    [
        ({"layers": "many"}, "MANIFEST_INVALID"),
        ({"layers": [{"digest": "md5:00"}]}, "MANIFEST_INVALID"),
        ({"layers": [17]}, "MANIFEST_INVALID"),
        ({"mediaType": "text/plain"}, "MANIFEST_INVALID"),
        ({"layers": [{"digest": f"sha256:{number:064}"} for number in range(33)]}, "MANIFEST_BLOB_UNKNOWN"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(client: httpx.Client, about: dict[str, Any], code: str) -> None:
    answer = put_manifest(client, "bad", **about)
    assert (answer.status_code, code_of(answer)) == (400, code)


@pytest.mark.parametrize("place", ["config", "layers", "manifests"])
def test_a_wrong_size_of_what_has_come_is_refused(client: httpx.Client, place: str) -> None:
    base, data = f"/v2/team/sizes-{place}", b"5 byt"
    right = descriptor(data)
    if place == "manifests":
        child = put_manifest(client, "child", base, layers=[])
        right = {"digest": child.headers["docker-content-digest"], "size": len(child.request.content)}
    else:
        push(client, data, base)
    for size in (0, 4, 6, 1 << 63, -5, "5", 5.0, True, [5]):
        wrong = right | {"size": size}
        answer = put_manifest(client, "v1", base, **{place: wrong if place == "config" else [wrong]})
        assert (answer.status_code, code_of(answer)) == (400, "MANIFEST_INVALID"), size
        assert place in answer.text
    assert client.get(f"{base}/manifests/v1").status_code == 404
    assert put_manifest(client, "v1", base, **{place: right if place == "config" else [right]}).status_code == 201


@pytest.mark.parametrize(
    "title", ["../up", "/etc/passwd", "a//b", "blobs/sha256/x", "a\\b", "x" * 2000, "model.onnx/inside", "\x00"]
)
def test_a_title_that_is_no_path_leaves_the_blob_its_digest_for_a_name(client: httpx.Client, title: str) -> None:
    data = b"of " + repr(title).encode()
    push(client, data)
    push(client, b"model")
    layers = [descriptor(b"model", "model.onnx"), descriptor(data, title)]
    put = put_manifest(client, "odd", layers=layers)
    assert put.status_code == 201, put.text
    files = client.get(f"/v1/stores/{put.headers['protoslice-store']}").json()["files"]
    assert {file["path"] for file in files} == {"model.onnx", f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"}


OF_ORAS = "application/vnd.oci.image.layer.v1.tar"
"""The media type that oras gives a plain file."""


def paths_in(client: httpx.Client, put: httpx.Response) -> set[str]:
    assert put.status_code == 201, put.text
    files = client.get(f"/v1/stores/{put.headers['protoslice-store']}").json()["files"]
    return {file["path"] for file in files}


@pytest.mark.parametrize("media_type", [OF_ORAS, f"{OF_ORAS}+gzip", "application/vnd.x.tar+zstd", "text/plain", ""])
def test_a_title_names_the_file_whatever_the_media_type(client: httpx.Client, media_type: str) -> None:
    base, data = "/v2/team/titled", f"of {media_type}".encode()
    push(client, data, base)
    put = put_manifest(client, "v1", base, layers=[descriptor(data, "sub/config.json", mediaType=media_type)])
    assert paths_in(client, put) == {"sub/config.json"}
    assert client.get("/team/titled/resolve/v1/sub/config.json").content == data


def test_external_data_of_a_model_pushed_by_oras_is_found(client: httpx.Client) -> None:
    folder = next(path.parent for path in GOLDEN.glob("*/*.onnx") if "external" in path.parent.name)
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for data in files.values():
        push(client, data)
    layers = [descriptor(data, path, mediaType=OF_ORAS) for path, data in files.items()]
    put = put_manifest(client, "external", layers=layers)
    assert paths_in(client, put) == set(files)
    store = put.headers["protoslice-store"]
    for tensor in json.loads((folder / "expected.json").read_text())["tensors"]:
        got = client.get(f"/v1/stores/{store}/tensors/{quote(tensor['name'])}").content
        assert hashlib.sha256(got).hexdigest() == tensor["sha256"]


def test_equal_blobs_are_files_under_each_of_their_titles(client: httpx.Client) -> None:
    data = b"equal bytes"
    push(client, data)
    layers = [descriptor(data, title, mediaType=OF_ORAS) for title in ("b/two.bin", "one.bin", "one.bin", "../x", None)]
    for _ in range(2):  # of the upload, and of the store that contains it now
        put = put_manifest(client, "equal", layers=layers)
        assert paths_in(client, put) == {"b/two.bin", "one.bin"}
    for path in ("b/two.bin", "one.bin"):
        assert client.get(f"/v1/stores/{put.headers['protoslice-store']}/files/{path}").content == data


def test_of_two_blobs_with_one_title_the_second_keeps_its_digest(client: httpx.Client) -> None:
    for data in (b"first", b"second"):
        push(client, data)
    layers = [descriptor(data, "same.bin", mediaType=OF_ORAS) for data in (b"first", b"second")]
    put = put_manifest(client, "same", layers=layers)
    assert paths_in(client, put) == {"same.bin", f"blobs/sha256/{hashlib.sha256(b'second').hexdigest()}"}
    assert client.get(f"/v1/stores/{put.headers['protoslice-store']}/files/same.bin").content == b"first"


@pytest.mark.parametrize("root", ["", "/spaces/team"])
def test_locations_are_absolute(client: httpx.Client, root: str) -> None:
    if root:
        client.put("/v1/spaces/team")
    base, data = f"{root}/v2/ollama/model", b"ollama"
    own = str(client.base_url).rstrip("/")
    begun = client.post(f"{base}/blobs/uploads/")
    at = begun.headers["location"]
    assert at.startswith(f"{own}{base}/blobs/uploads/")
    sent = client.patch(at, content=data, headers={"content-range": f"0-{len(data) - 1}"})
    assert sent.headers["location"] == client.get(at).headers["location"] == at
    blob = f"{own}{base}/blobs/{digest_of(data)}"
    assert client.put(at, params={"digest": digest_of(data)}).headers["location"] == blob
    for method in ("HEAD", "GET"):
        answer = client.request(method, blob)
        assert (answer.status_code, answer.headers["location"]) == (200, blob)
    manifest = put_manifest(client, "v1", base, layers=[descriptor(data)]).headers
    assert manifest["location"] == f"{own}{base}/manifests/{manifest['docker-content-digest']}"


def test_locations_have_the_scheme_that_a_trusted_proxy_says(serving: Serving) -> None:
    with (
        serving(auth="open", trusted_proxies=["127.0.0.1"], allowed_hosts=["models.example"]) as live,
        httpx.Client(base_url=live.url) as client,
    ):
        headers = {"host": "models.example", "x-forwarded-proto": "https"}
        location = client.post("/v2/a/b/blobs/uploads/", headers=headers).headers["location"]
        assert location.startswith("https://models.example/v2/a/b/blobs/uploads/")


@pytest.mark.parametrize("name", ["Upper", "a--", "-a", "a..b", "a/", "../a", "a" * 256, "a/%2e%2e/b", "a%00"])
def test_a_name_that_is_none_is_refused(client: httpx.Client, name: str) -> None:
    answer = client.get(f"/v2/{name}/tags/list")
    assert answer.status_code in {400, 404}
    if answer.status_code == 400:
        assert code_of(answer) == "NAME_INVALID"


def test_another_space_has_other_repositories(client: httpx.Client) -> None:
    digest = push(client, b"of the default space")
    assert client.put("/v1/spaces/oci").status_code in {200, 201}
    assert client.get(f"/spaces/oci{BASE}/blobs/{digest}").status_code == 404
    location = client.post(f"/spaces/oci{BASE}/blobs/uploads/").headers["location"]
    assert location.startswith(str(client.base_url.join("/spaces/oci/v2/")))
    assert client.put(location, params={"digest": digest}, content=b"of the default space").status_code == 201
    assert client.get(f"/spaces/oci{BASE}/blobs/{digest}").content == b"of the default space"


def test_lists_in_pages_stay_in_their_space(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.server.registries.oci.MAX_PAGE_ITEMS", 1)
    with serving() as live, httpx.Client(base_url=live.url, timeout=30) as client:
        assert client.put("/v1/spaces/oci").status_code == 201
        put_manifest(client, "elsewhere", "/v2/elsewhere", layers=[])
        base = "/spaces/oci/v2/paged"
        subject = put_manifest(client, "v1", base, layers=[]).headers["docker-content-digest"]
        about = {"layers": [], "subject": {"digest": subject}}
        for kind in ("a b", "a c"):
            assert put_manifest(client, kind[-1], base, annotations={"of": kind}, **about).status_code == 201
        put_manifest(client, "v1", "/spaces/oci/v2/second", layers=[])

        def listed(url: str) -> list[dict[str, Any]]:
            pages = list[dict[str, Any]]()
            while url:
                answer = client.get(url)
                assert (answer.status_code, len(pages) < 5) == (200, True), answer.text
                pages.append(answer.json())
                url = answer.links.get("next", {}).get("url", "")
            return pages

        assert [name for page in listed("/spaces/oci/v2/_catalog?n=1") for name in page["repositories"]] == [
            "paged",
            "second",
        ]
        assert [tag for page in listed(f"{base}/tags/list") for tag in page["tags"]] == ["b", "c", "v1"]
        referrers = [page["manifests"] for page in listed(f"{base}/referrers/{subject}")]
        assert {each["annotations"]["of"] for [each] in referrers} == {"a b", "a c"}
        assert len(listed(f"{base}/referrers/{subject}?artifactType=x%2Fy")) == 2


def test_a_model_whose_store_was_removed_can_be_pushed_again(client: httpx.Client) -> None:
    base, data = "/v2/team/removed", b"to be removed and sent again"
    digest = push(client, data, base)
    store = put_manifest(client, "v1", base, layers=[descriptor(data)]).headers["protoslice-store"]
    assert client.delete(f"/v1/stores/{store}?force=team/removed:v1").status_code == 200
    assert client.head(f"{base}/blobs/{digest}").status_code == 404
    assert code_of(client.get(f"{base}/blobs/{digest}")) == "BLOB_UNKNOWN"
    assert code_of(put_manifest(client, "v2", base, layers=[descriptor(data)])) == "MANIFEST_BLOB_UNKNOWN"
    assert (
        client.post("/v2/team/other/blobs/uploads/", params={"mount": digest, "from": "team/removed"}).status_code
        == 202
    )
    push(client, data, base)
    assert put_manifest(client, "v2", base, layers=[descriptor(data)]).status_code == 201
    assert client.get(f"{base}/blobs/{digest}").content == data


def test_an_upload_that_is_finished_twice_is_answered_twice(client: httpx.Client) -> None:
    data = b"whose answer was lost"
    location = client.post(f"{BASE}/blobs/uploads/").headers["location"]
    for _ in range(2):
        put = client.put(location, params={"digest": digest_of(data)}, content=data)
        assert put.status_code == 201, put.text
    other = client.put(location, params={"digest": digest_of(b"other")}, content=data)
    assert code_of(other) == "BLOB_UPLOAD_UNKNOWN"


@pytest.mark.parametrize("tag", [".hidden", "a b", "x" * 129, "ä"])
def test_a_tag_that_is_none_is_refused(client: httpx.Client, tag: str) -> None:
    answer = put_manifest(client, tag, layers=[])
    assert (answer.status_code, code_of(answer)) == (400, "NAME_INVALID")
    assert code_of(client.get(f"{BASE}/manifests/{tag}")) == "MANIFEST_UNKNOWN"


HTML = b"<script>steal()</script>"


@pytest.mark.parametrize(
    "media_type",
    [
        "text/html",
        "text/html; charset=utf-8",
        "TEXT/HTML",
        "image/svg+xml",
        "application/xhtml+xml",
        "application/pdf",
        "text/plain",
        "application/octet-stream",
        "application/x+json",
        "application/vnd.x+json\ttext/html",
        "multipart/x-mixed-replace",
        "*/*",
        "",
    ],
)
@pytest.mark.parametrize("data", [HTML, b'{"schemaVersion": 2, "layers": []}', b'{"mediaType": "text/html"}'])
def test_manifests_are_json_only(client: httpx.Client, media_type: str, data: bytes) -> None:
    headers = {"content-type": media_type} if media_type else {}
    answer = client.put("/v2/evil/manifests/latest", content=data, headers=headers)
    assert (answer.status_code, code_of(answer)) == (400, "MANIFEST_INVALID")
    assert client.get("/v2/evil/manifests/latest").status_code == 404


@pytest.mark.parametrize("media_type", [MANIFEST, "application/json", MANIFEST.upper(), f"{MANIFEST}; charset=utf-8"])
def test_manifests_of_json_types_are_taken(client: httpx.Client, media_type: str) -> None:
    data = json.dumps({"schemaVersion": 2, "layers": []}).encode()
    put = client.put("/v2/team/typed/manifests/v1", content=data, headers={"content-type": media_type})
    assert put.status_code == 201, put.text
    got = client.get("/v2/team/typed/manifests/v1")
    assert got.content == data
    assert got.headers["content-type"] == media_type.partition(";")[0].lower()
    assert got.headers["content-security-policy"].endswith("sandbox")


def test_a_manifest_without_a_content_type_has_the_one_it_names(client: httpx.Client) -> None:
    data = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": []}).encode()
    assert client.put("/v2/team/untyped/manifests/v1", content=data).status_code == 201
    assert client.get("/v2/team/untyped/manifests/v1").headers["content-type"] == MANIFEST


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"layers": ' * 50_000,
        b'{"annotations": {"title": "\\ud800"}}',
        b'{"layers": [{"digest": "sha256:' + b"0" * 64 + b'", "annotations": {"\\udc00": "x"}}]}',
        b'{"artifactType": "\xed\xa0\x80"}',
        b"\xff\xfe{\x00}\x00",
        b'{"mediaType": 17}',
        b'{"layers": [], "annotations": {"a": NaN}}',
        b'{"layers": [], "size": -Infinity}',
        b'{"mediaType": null}',
        b"17",
        b"",
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_manifests_that_are_no_json_are_refused(client: httpx.Client, data: bytes, named: bool) -> None:
    headers = {"content-type": MANIFEST} if named else {}
    answer = client.put("/v2/evil/manifests/deep", content=data, headers=headers)
    assert (answer.status_code, code_of(answer)) == (400, "MANIFEST_INVALID")


def test_referrers_come_in_pages_of_about_a_mebibyte(client: httpx.Client) -> None:
    base, wanted = "/v2/team/many", set()
    subject = put_manifest(client, "v1", base, layers=[]).headers["docker-content-digest"]
    for number in range(40):
        about = {"subject": {"digest": subject}, "annotations": {"text": f"{number}" + "x" * 60_000}}
        put = put_manifest(client, f"r{number}", base, layers=[], artifactType=f"a/{number % 2}", **about)
        assert put.status_code == 201, put.text
        wanted.add(put.headers["docker-content-digest"])
    for params, share in (({}, 1), ({"artifactType": "a/0"}, 2)):
        seen: list[str] = []
        url = str(httpx.URL(f"{base}/referrers/{subject}", params=params))
        while url:
            page = client.get(url)
            assert len(page.content) <= 1 << 20
            seen += [each["digest"] for each in page.json()["manifests"]]
            url = page.headers.get("link", "").partition(">")[0].removeprefix("<")
        assert len(seen) == len(set(seen)) == 40 // share
        assert set(seen) <= wanted


def test_long_annotations_of_a_manifest_with_a_subject_are_refused(client: httpx.Client) -> None:
    base, annotations = "/v2/team/annotated", {"text": "x" * (64 << 10)}
    subject = put_manifest(client, "v1", base, layers=[], annotations=annotations).headers["docker-content-digest"]
    refused = put_manifest(client, "r", base, layers=[], annotations=annotations, subject={"digest": subject})
    assert (refused.status_code, code_of(refused)) == (413, "SIZE_INVALID")
    assert client.get(f"{base}/referrers/{subject}").json()["manifests"] == []


async def test_no_page_of_referrers_reads_more_than_a_mebibyte() -> None:
    async with opened(MemoryStorage()) as stores:
        repository = ArtifactRepository(stores, RepositoryName("team/old"))
        subject = Digest.of(b"subject")
        for number in range(5):
            digest, descriptor = Digest.of(b"%d" % number), "x" * (4 << 20)
            manifest = StoredManifest(digest, MANIFEST, b"{}", subject=subject, referrer=descriptor)
            await repository.table.put_manifest(manifest)
        seen, after = 0, None
        while True:
            found, after = await repository.referrers(subject, limit=100, after=after)
            assert len(found) == 1, "the first always fits, and no second one of such a size"
            seen += len(found)
            if after is None:
                break
        assert seen == 5
