"""Names that version control reserves: every upload refuses them, and every download of several files omits them.

A store whose files no disk can hold together is refused on every upload, with both names.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.bodies import ways
from tests.server.bodies.ways import OF_SEVERAL, Site, Way
from tests.support.calls import RULES
from tests.support.hub import header, inline, lines_of, shard_of, xorb_of
from tests.support.serve import Asked, ask, assert_problem, open_app

from protoslice import file_names
from protoslice.catalog.requests import FilePaths
from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.recipes import MEDIA_TYPE as RECIPE
from protoslice.server.app import Application

Send = Callable[[Application, str], Awaitable[Asked]]

DATA: Final = b"[core]\n\tfsmonitor = touch pwned\n"
JSON: Final = {"content-type": "application/json"}
TUS: Final = {"tus-resumable": "1.0.0", "content-type": "application/offset+octet-stream"}
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
MLFLOW: Final = "/api/2.0/mlflow-artifacts"
REFUSED: Final = [
    ".git/config",
    "a/.GIT/hooks/post-checkout",
    ".git",
    "GIT~1/config",
    ".git. ./config",
    ".git::$INDEX_ALLOCATION/config",
    ".hg/hgrc",
    "HG8B6C~1/hgrc",
    "JJ2E09~1/repo/config.toml",
    "GI2837~1/config",
    "a/.jj/repo/config.toml",
]
ALLOWED: Final = [".gitattributes", ".gitignore", ".github/workflows/a.yml", "a.git/config", "git/config", ".gitx/a"]
# Such names are refused by their form anyway, but clients may meet names that older versions accepted.
UNPRINTABLE: Final = [".g\u200cit/config", ".gi\ufefft/config", "\u202a.git/config"]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def posted(target: str, body: Callable[[str], bytes], headers: dict[str, str], method: str = "POST") -> Send:
    """Send a request that names the file in its body."""

    async def send(app: Application, path: str) -> Asked:
        return await ask(app, method, target, body(path), headers)

    return send


async def raw(app: Application, path: str) -> Asked:
    return await ask(app, "PUT", f"/v1/stores?filename={quote(path)}", DATA)


def form_of(path: str) -> bytes:
    part = f'--b\r\ncontent-disposition: form-data; name="f"; filename="{path}"\r\n\r\n'
    return part.encode() + DATA + b"\r\n--b--\r\n"


def tar_of(path: str) -> bytes:
    return ways.tar_of({path: DATA})


def recipe_of(path: str) -> bytes:
    return ways.recipe_of({path: DATA})


async def uploaded(app: Application, data: bytes) -> str:
    """Return the URL of a finished upload."""
    sizes = {"upload-length": str(len(data)), "upload-concat": "partial"}
    return (await ask(app, "POST", "/v1/uploads", data, TUS | sizes)).headers["location"]


async def resumable(app: Application, path: str) -> Asked:
    named = f"filename {b64encode(path.encode()).decode()}"
    return await ask(
        app, "POST", "/v1/uploads", DATA, TUS | {"upload-length": str(len(DATA)), "upload-metadata": named}
    )


async def assembled(app: Application, path: str) -> Asked:
    body = json.dumps({"uploads": {path: await uploaded(app, DATA)}})
    return await ask(app, "POST", "/v1/stores/assemble", body.encode(), JSON)


def assembled_from(member: str, made: Callable[[str], bytes]) -> Send:
    async def send(app: Application, path: str) -> Asked:
        body = json.dumps({member: await uploaded(app, made(path))})
        return await ask(app, "POST", "/v1/stores/assemble", body.encode(), JSON)

    return send


async def registered(app: Application, path: str) -> Asked:
    place = f"{app.services.settings.register_allow[0]}/model.pb"
    return await ask(app, "POST", "/v1/stores/register", json.dumps({"files": {path: place}}).encode(), JSON)


async def repository(app: Application) -> None:
    await ask(app, "POST", "/api/repos/create", b'{"name": "m", "organization": "team"}', JSON)


async def committed(app: Application, *operations: Any) -> Asked:
    await repository(app)
    kind = {"content-type": "application/x-ndjson"}
    return await ask(app, "POST", "/api/models/team/m/commit/main", lines_of(header(), *operations), kind)


async def hub_file(app: Application, path: str) -> Asked:
    return await committed(app, inline(path, DATA))


async def hub_lfs(app: Application, path: str) -> Asked:
    await repository(app)
    data = DATA * 40
    kind = "application/vnd.git-lfs+json"
    wanted = {"operation": "upload", "objects": [{"oid": sha256(data), "size": len(data)}]}
    batch = await ask(
        app, "POST", "/team/m.git/info/lfs/objects/batch", json.dumps(wanted).encode(),
        {"content-type": kind, "accept": kind},
    )  # fmt: skip
    if actions := json.loads(batch.body)["objects"][0].get("actions"):
        await ask(app, "PUT", urlsplit(actions["upload"]["href"]).path, data)
    return await committed(app, ("lfsFile", {"path": path, "algo": "sha256", "oid": sha256(data), "size": len(data)}))


async def hub_xet(app: Application, path: str) -> Asked:
    await repository(app)
    told = await ask(app, "GET", "/api/models/team/m/xet-write-token/main")
    base, data = urlsplit(json.loads(told.body)["casUrl"]).path, DATA * 40
    hash, sent = xorb_of(data)
    await ask(app, "POST", f"{base}/v1/xorbs/default/{hash}", sent)
    await ask(app, "POST", f"{base}/v1/shards", shard_of((data, [(hash, len(data), 0, 1)])))
    return await committed(app, ("lfsFile", {"path": path, "algo": "sha256", "oid": sha256(data), "size": len(data)}))


def pushed(annotation: str) -> Send:
    async def send(app: Application, path: str) -> Asked:
        for blob in (b"{}", DATA):
            await ask(app, "POST", f"/v2/box/i/blobs/uploads/?digest=sha256:{sha256(blob)}", blob)
        config, layer = ({"mediaType": "a/b", "digest": f"sha256:{sha256(b)}", "size": len(b)} for b in (b"{}", DATA))
        layer |= {"annotations": {annotation: path}}
        body = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
        return await ask(app, "PUT", "/v2/box/i/manifests/v1", json.dumps(body).encode(), {"content-type": MANIFEST})

    return send


def logged(data: bytes) -> Send:
    async def send(app: Application, path: str) -> Asked:
        return await ask(app, "PUT", f"{MLFLOW}/artifacts/run/{quote(path)}", data)

    return send


async def logged_in_parts(app: Application, path: str) -> Asked:
    folder, _, name = f"run/{path}".rpartition("/")
    begun = await ask(
        app, "POST", f"{MLFLOW}/mpu/create/{quote(folder)}", json.dumps({"path": name, "num_parts": 1}).encode(), JSON
    )
    made = json.loads(begun.body)
    place = urlsplit(made["credentials"][0]["url"])
    part = await ask(app, "PUT", f"{place.path}?{place.query}", DATA)
    parts = [{"part_number": 1, "etag": part.headers["etag"]}]
    body = {"path": name, "upload_id": made["upload_id"], "parts": parts}
    return await ask(app, "POST", f"{MLFLOW}/mpu/complete/{quote(folder)}", json.dumps(body).encode(), JSON)


BYTES: Final = {"content-type": "application/octet-stream"}
WAYS: Final[dict[str, dict[str, Send]]] = {
    "POST /v1/stores": {
        "form": posted("/v1/stores", form_of, {"content-type": "multipart/form-data; boundary=b"}),
        "tar": posted("/v1/stores", tar_of, {"content-type": "application/x-tar"}),
        "recipe": posted("/v1/stores", recipe_of, {"content-type": RECIPE}),
        "format=tar": posted("/v1/stores?format=tar", tar_of, BYTES),
        "format=recipe": posted("/v1/stores?format=recipe", recipe_of, BYTES),
    },
    "PUT /v1/stores": {"raw": raw, "recipe": posted("/v1/stores", recipe_of, {"content-type": RECIPE}, "PUT")},
    "POST /v1/stores/assemble": {
        "uploads": assembled,
        "recipe": assembled_from("recipe", recipe_of),
        "archive": assembled_from("archive", tar_of),
    },
    "POST /v1/stores/register": {"register": registered},
    "POST /v1/uploads": {"resumable": resumable},
    "POST /api/{kind}/{name:repository}/commit/{revision}": {
        "file": hub_file,
        "lfs": hub_lfs,
        "xet": hub_xet,
    },
    "PUT /v2/{name:path}/manifests/{ref}": {
        "title": pushed("org.opencontainers.image.title"),
        "file path": pushed("org.cncf.model.filepath"),
    },
    "PUT /api/2.0/mlflow-artifacts/artifacts/{name:path}": {"small": logged(DATA), "large": logged(DATA * 1000)},
    "POST /api/2.0/mlflow-artifacts/mpu/complete/{name:path}": {"parts": logged_in_parts},
}
"""The ways to upload, by the row of the route that ends them."""
NAMELESS: Final = {
    "POST /v1/drafts/{name:path}", "POST /v1/stores/{ref}/merge", "POST /v1/stores/{ref}/parts",
    "POST /v1/chunks/missing", "PUT /v1/schemas/{name}", "POST /session", "PATCH /v1/stores/{ref}",
    "POST /v1/stores/{id}/restore", "PUT /v1/tags/{tag}", "PATCH /v1/uploads/{upload}", "POST /v1/uploads/{upload}",
    "PUT /v1/spaces/{space}", "PATCH /v1/spaces/{space}", "POST /v1/tokens", "POST /v1/sign", "PUT /v1/webhooks/{name}",
    "POST /v1/s3-keys",
    "PUT /s3", "PUT /s3/bucket", "PUT /s3/bucket/key", "POST /s3", "POST /s3/bucket", "POST /s3/bucket/key",
    "POST /v1/webhooks/{name}/redeliver",
    "PUT /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}/{number}",
    "POST /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}",
    "POST /{name:repository_of_kind}.git/info/lfs/objects/batch",
    "PUT /api/lfs-uploads/{kind}/{name:repository}/{upload}",
    "POST /api/{kind}/{name:repository}/super-squash/{branch}",
    "POST /api/repos/move", "PUT /api/{kind}/{name:repository}/settings",
    "POST /api/{kind}/{name:repository}/paths-info/{revision}", "POST /api/repos/create", "POST /api/validate-yaml",
    "POST /api/{kind}/{name:repository}/preupload/{revision}", "POST /api/{kind}/{name:repository}/discussions",
    "POST /api/{kind}/{name:repository}/branch/{branch}", "POST /api/{kind}/{name:repository}/tag/{revision}",
    "POST /api/xet/{kind}/{name:repository}/{session}/v1/xorbs/default/{hash}",
    "POST /api/xet/{kind}/{name:repository}/{session}/v1/shards",
    "POST /api/2.0/mlflow-artifacts/mpu/create/{name:path}", "POST /api/2.0/mlflow-artifacts/mpu/abort/{name:path}",
    "PUT /api/2.0/mlflow-artifacts/parts/{session}/{name:path}", "POST /v2/{name:path}/blobs/uploads/",
    "PATCH /v2/{name:path}/blobs/uploads/{upload}", "PUT /v2/{name:path}/blobs/uploads/{upload}",
}  # fmt: skip
"""The routes that store no file under a name from the request."""
EACH: Final = [pytest.param(send, id=f"{row} {name}") for row, ways in WAYS.items() for name, send in ways.items()]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Application]:
    (tmp_path / "model.pb").write_bytes(DATA)
    async with open_app(register_allow=(tmp_path.as_uri(),)) as app:
        yield app


@contextmanager
def older_version() -> Any:
    """Accept names as versions before this rule did."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_names, "is_version_control", lambda path: False)
        yield


async def paths_in(app: Application) -> list[str]:
    """Return the paths of all files, of stores and of artifacts."""
    listed = json.loads((await ask(app, "GET", "/v1/stores")).body)["items"]
    artifacts = json.loads((await ask(app, "GET", f"{MLFLOW}/artifacts?path=run")).body)["files"]
    return [file["path"] for store in listed for file in store["files"]] + [each["path"] for each in artifacts]


def test_every_route_that_takes_content_is_known() -> None:
    rows = {row for row in RULES if row.partition(" ")[0] not in {"GET", "HEAD", "DELETE", "OPTIONS"}}
    assert WAYS.keys() | NAMELESS == rows, "say how a new route names files, or that it names none"
    assert not WAYS.keys() & NAMELESS


@pytest.mark.parametrize("send", EACH)
async def test_names_of_version_control_are_refused_on_every_way_in(send: Send, app: Application) -> None:
    for path in REFUSED:
        refused = await send(app, path)
        assert 400 <= refused.status < 500, (path, refused)
        # An upload of a session, and a base name, may arrive with another folder in front.
        assert path.rpartition("/")[2] in json.dumps(json.loads(refused.body), ensure_ascii=False), refused.body
    # Bytes of a refused commit may already have a store, under their digest or another name.
    assert not [path for path in await paths_in(app) if path in REFUSED or path.startswith(".")]
    for path in ALLOWED:
        taken = await send(app, path)
        assert taken.status < 300, (path, taken)


def test_the_spellings_of_git_are_known() -> None:
    assert all(map(file_names.is_version_control, [*REFUSED, *UNPRINTABLE]))
    assert not any(map(file_names.is_version_control, ALLOWED))


async def test_names_taken_before_are_read_one_by_one_and_left_out_of_what_writes_many(app: Application) -> None:
    named = {".git/config": DATA, "a.txt": b"a", "b/.HG/hgrc": DATA}
    with older_version():
        made = await committed(app, *(inline(*each) for each in named.items()))
        for path in named:
            assert (await logged(DATA)(app, path)).status < 300
    assert made.status == 200, made
    resolved = await ask(app, "GET", "/team/m/resolve/main/.git/config")
    assert resolved.body == DATA
    assert (await ask(app, "GET", f"{MLFLOW}/artifacts/run/.git/config")).body == DATA
    base = "/v1/stores/team%2Fm@main"
    assert (await ask(app, "GET", f"{base}/files/.git/config")).body == DATA

    archive = await ask(app, "GET", f"{base}/archive.tar")
    with tarfile.open(fileobj=io.BytesIO(archive.body)) as tar:
        assert tar.getnames() == ["a.txt"]
    assert archive.headers["protoslice-omitted"] == 'count=2, names=(".git/config" "b/.HG/hgrc")'
    tree = await ask(app, "GET", "/api/models/team/m/tree/main?recursive=true")
    assert [each["path"] for each in json.loads(tree.body)] == ["a.txt"]
    for target in ("/api/models/team/m", "/api/models/team/m?blobs=true"):
        about = json.loads((await ask(app, "GET", target)).body)
        assert [each["rfilename"] for each in about["siblings"]] == ["a.txt"]
    listed = json.loads((await ask(app, "GET", "/api/models?full=true")).body)
    assert [each["siblings"] for each in listed] == [[{"rfilename": "a.txt"}]]
    manifest = json.loads((await ask(app, "GET", "/v2/team/m/manifests/main")).body)
    assert [each["annotations"]["org.opencontainers.image.title"] for each in manifest["layers"]] == ["a.txt"]
    artifacts = json.loads((await ask(app, "GET", f"{MLFLOW}/artifacts?path=run")).body)
    assert {each["path"] for each in artifacts["files"]} == {"a.txt", "b"}
    assert json.loads((await ask(app, "GET", f"{MLFLOW}/artifacts?path=run/b")).body)["files"] == []
    # They can be removed.
    assert (await ask(app, "DELETE", f"{MLFLOW}/artifacts/run/.git")).status < 300
    removed = await committed(app, ("deletedFolder", {"path": ".git"}), ("deletedFolder", {"path": "b/.HG"}))
    assert removed.status == 200, removed


PATHS = b"\x0a\x05paths"
CLASHES = [("a", "a/b"), ("a/b", "a"), ("x/y/z.pb", "x"), ("x", "x/y/z.pb")]


@pytest.mark.parametrize("way", OF_SEVERAL, ids=lambda way: way.__name__)
def test_a_file_that_is_a_folder_for_another_is_refused(site: Site, way: Way) -> None:
    for paths in CLASHES:
        refused = way(site, dict.fromkeys(paths, PATHS))
        problem = assert_problem(
            refused.status_code, refused.headers, refused.content, expected=400, slug="invalid-input"
        )
        assert all(repr(path) in problem["detail"] for path in paths)
    assert way(site, dict.fromkeys(("a", "a-b", "a.b/c", "ab", "b/a"), PATHS)).status_code in {200, 201}


@pytest.mark.parametrize("path", ["/v1/stores/register", "/v1/stores/assemble"])
def test_more_files_than_a_store_holds_are_refused_before_any_is_looked_at(site: Site, path: str) -> None:
    named = {f"f{number}": "x" for number in range(MAX_FILES + 1)}
    refused = site.client.post(path, json={"files": named} if "register" in path else {"uploads": named})
    assert_problem(refused.status_code, refused.headers, refused.content, expected=413, slug="limit-exceeded")


def test_a_store_holds_only_so_many_files() -> None:
    found = FilePaths()
    for number in range(MAX_FILES):
        found.add(f"f{number}")
    with pytest.raises(LimitExceeded, match=str(MAX_FILES)):
        found.add("one more")


@given(st.lists(st.text("a/-", min_size=1, max_size=5), max_size=6))
def test_paths_go_together_as_on_a_disk(paths: list[str]) -> None:
    plain = [path for path in paths if "" not in path.split("/")]
    together = all(
        one != other and not other.startswith(one + "/") for one in set(plain) for other in set(plain) - {one}
    )
    found = FilePaths()
    try:
        for path in plain:
            found.add(path)
        accepted = True
    except InvalidInput:
        accepted = False
    assert accepted == (together and len(set(plain)) == len(plain))
