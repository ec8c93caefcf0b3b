"""The calls of every route. Their targets name things of the caller's space or of another space."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from tests.support.hub import header, inline, shard_of, xorb_of
from tests.support.things import (
    BYTES,
    DESCRIPTORS,
    JSON,
    LFS,
    LINES,
    MANIFEST,
    TUS,
    Things,
    dumped,
    lines,
    manifest_of,
    model_of,
    recipe_of,
    sha256,
    text_of,
)

from protoslice.errors import NotFound
from protoslice.recipes import MEDIA_TYPE as RECIPE
from protoslice.server.app import Application, create_app
from protoslice.server.settings import Settings
from protoslice.tensors.reading import FORMS


@dataclass(frozen=True)
class Call:
    """A request whose target and body have placeholders for names of things."""

    method: str
    target: str
    body: Callable[[Things], bytes] = lambda _: b""
    headers: Mapping[str, str] = field(default_factory=dict)
    timed: bool = False
    """True where the answer's body depends on time, so that only its status is compared."""
    unordered: bool = False
    """True where random names decide a list's order, so that its items are compared without names."""
    refused: int | None = None
    """The status if even an owner of all named things is refused; None for a call that succeeds for an owner."""

    def __str__(self) -> str:
        return f"{self.method} {self.target}"

    @property
    def route(self) -> str:
        """The route's row in the table of rules; empty if no route takes the call."""
        with suppress(NotFound):
            return _app().asked(self.method, self.anonymous).row
        return ""

    @property
    def anonymous(self) -> str:
        """The target with names of things that do not exist."""
        return self.by_name("x")

    def by_name(self, name: str) -> str:
        """Return the target with the same name for everything."""
        return _NAME.sub(lambda found: _FOLDERS.get(found[1], "") + name, self.target)

    def filled(self, things: Things, place: str) -> tuple[str, str, bytes, dict[str, str]]:
        """Return method, target, body and headers with names filled in; `place` is the path of a space with content."""
        named = {**things, "place": place, "slashed": things["repository"].replace("/", "%2F")}
        headers = {name: value.format_map(named) for name, value in self.headers.items()}
        return self.method, self.target.format_map(named), self.body(things), headers


_NAME: Final = re.compile(r"{(\w+)}")
_FOLDERS: Final = {"repository": "a/", "image": "a/", "slashed": "a%2F"}
"""The first parts of names that have two parts."""


@cache
def _app() -> Application:
    return create_app(Settings(storage="memory://"))


RULES: Final = _app().rules
"""The rules of all routes, by method and path."""


def _plain(table: str) -> list[Call]:
    """Return calls without a body, one for each line; a third word is the status of a refusal."""
    rows = [(*row.split(), "")[:3] for row in table.strip().splitlines()]
    return [Call(method, target, refused=int(status) if status else None) for method, target, status in rows]


def _refused(status: int, call: Call) -> Call:
    return replace(call, refused=status)


def _json(method: str, target: str, **content: object) -> Call:
    """Return a call whose body is JSON; texts in the body may have placeholders for names."""

    def named(value: object, things: Things) -> object:
        if isinstance(value, str):
            return value.format_map(things)
        if isinstance(value, dict):
            return {named(key, things): named(each, things) for key, each in value.items()}
        return [named(each, things) for each in value] if isinstance(value, list) else value

    return Call(method, target, lambda things: dumped(named(content, things)), JSON)


def _batch(what: str, repository: str = "{repository}", operation: str = "upload") -> Call:
    def body(things: Things) -> bytes:
        wanted = {"oid": things[f"oid_{what}"], "size": int(things[f"size_{what}"])}
        return dumped({"operation": operation, "objects": [wanted]})

    return Call("POST", f"/{repository}.git/info/lfs/objects/batch", body, {"content-type": LFS, "accept": LFS})


def _commit(*operations: tuple[str, dict[str, str]]) -> Call:
    """Return a commit call; values in the commit may have placeholders for names."""

    def body(things: Things) -> bytes:
        named = [(key, {name: each.format_map(things) for name, each in value.items()}) for key, value in operations]
        return lines(*named)

    return Call("POST", "/api/models/{repository}/commit/main", body, LINES)


READING: Final = [
    *_plain("""
    GET /
    GET /assets/x 404
    GET /docs
    GET /livez
    GET /readyz
    GET /openapi.json
    GET /.well-known/oauth-protected-resource 404
    GET /s3 404
    GET /s3/bucket 404
    GET /s3/bucket/key 404
    GET /session
    DELETE /session
    GET /session/login 404
    GET /session/callback?state=x 404
    GET /operations
    GET /problems/not-found
    GET /m/{word}
    GET /diff/{word}
    GET /metrics 404
    GET /v1/spaces 404
    GET /v1/spaces/other 404
    GET /v1/stores
    GET /v1/stores?tag={word}
    GET /v1/stores/{store}
    GET /v1/stores/{word}
    HEAD /v1/stores/{word}
    GET /v1/stores/{removed} 404
    GET /v1/stores/{store}/files/{file}
    HEAD /v1/stores/{store}/files/{file}
    GET /v1/stores/{word}/files/{file}
    GET /v1/stores/{mine}/diff?before={store}
    GET /v1/stores/{mine}/diff/{name}?before={store}
    GET /v1/stores/{mine}/moves?before={store}
    GET /v1/stores/{store}/archive.tar
    GET /v1/stores/{store}/chunks
    GET /v1/stores/{store}/chunks/0
    GET /v1/stores/{store}/chunks/1 404
    GET /v1/stores/{store}/cpb
    GET /v1/stores/{store}/diff?before={mine}
    GET /v1/stores/{store}/diff/{name}?before={mine}
    GET /v1/stores/{store}/diff/{name}?before={mine}&sample=0
    GET /v1/stores/{store}/graph
    GET /v1/stores/{store}/graph?around={node}
    GET /v1/stores/{store}/graph?search=a
    GET /v1/stores/{store}/graph/blocks
    GET /v1/stores/{store}/graph/between?start={node}&end={node}
    GET /v1/stores/{store}/merge
    GET /v1/stores/{store}/merge?path={field}
    GET /v1/stores/{store}/merge?fields={field}
    GET /v1/stores/{store}/merge?omit={field}
    GET /v1/stores/{store}/metadata
    GET /v1/stores/{store}/moves?before={mine}
    GET /v1/stores/{store}/moves?before={mine}&sample=1&limit=1
    GET /v1/stores/{store}/onnx/model.onnx
    GET /v1/stores/{store}/onnx/model.onnx?align=1
    GET /v1/stores/{store}/onnx/model.onnx?outputs={name}
    GET /v1/stores/{store}/onnx/weights.bin
    GET /v1/stores/{store}/onnx/weights.bin?align=1
    GET /v1/stores/{store}/onnx/weights.bin?outputs=y 404
    GET /v1/stores/{store}/onnx/weights.bin?outputs={name}
    GET /v1/stores/{store}/onnx/single.onnx
    GET /v1/stores/{store}/onnx/single.onnx?outputs=y 404
    GET /v1/stores/{store}/onnx/single.onnx?outputs={name}
    GET /v1/stores/{store}/pieces
    GET /v1/stores/{stream}/records
    GET /v1/stores/{stream}/records?summary=true
    GET /v1/stores/{stream}/records/0
    GET /v1/stores/{stream}/records/1
    GET /v1/stores/{store}/references.json
    GET /v1/stores/{store}/safetensors
    GET /v1/stores/{store}/safetensors?name={name}
    GET /v1/stores/{store}/safetensors/model.safetensors
    GET /v1/stores/{store}/safetensors/model.safetensors?align=4096
    GET /v1/stores/{store}/safetensors/model.safetensors?dtype=BF16
    GET /v1/stores/{store}/safetensors/model.safetensors.index.json?shards=1KiB 404
    GET /v1/stores/{store}/safetensors/model.safetensors.index.json?shards=4KiB&align=256 404
    GET /v1/stores/{store}/signatures
    GET /v1/stores/{store}/summary
    GET /v1/stores/{store}/tensors
    GET /v1/stores/{store}/tensors?name={name}
    GET /v1/stores/{store}/tensors?sort=name
    GET /v1/stores/{store}/tensors?search=a
    GET /v1/stores/{store}/tensors?prefix=%5C
    GET /v1/stores/{store}/tensors?regex=w&prefix=w&from=0
    GET /v1/stores/{store}/tensors/{name}
    GET /v1/stores/{store}/tensors/{name}?slice=0
    GET /v1/stores/{store}/tensors/{name}?format=stats
    GET /v1/stores/{store}/tensors/{name}?format=stats&sample=0
    GET /v1/stores/{store}/tensortree
    GET /v1/stores/{store}/tensortree?limit=1
    GET /v1/stores/{store}/tensortree?start=1&tensors=1
    GET /v1/stores/{store}/tensortree?prefix={name}
    GET /v1/stores/{store}/tree
    GET /v1/stores/{store}/tree?path={field}&depth=2
    GET /v1/stores/{store}/treemap
    GET /v1/stores/{store}/treemap?min_share=0
    GET /v1/stores/{store}/treemap?path={field}
    GET /v1/stores/{slashed}@main
    GET /v1/stores/{slashed}@feat%2F{word}/files/a.txt
    GET /v1/stores/{slashed}@{commit}/files/a.txt
    GET /v1/stores/box%2F{word}:v1/summary
    GET /v1/stores/box%2F{word}@{manifest}
    GET /v1/stores/mlflow-artifacts:%2F{word}/files/small
    GET /v1/stores/..%2F..%2F..%2Fspaces%2Fother%2Fv1%2Fstores%2F{word} 404
    GET /v1/stores/spaces%2Fother%2F{slashed}@main 404
    GET /v1/stores/%2E%2E%2Fother%2F{slashed}@main/files/a.txt 400
    GET /v1/removed
    GET /v1/tags
    GET /v1/tags/{word}
    GET /v1/tags?store={store}
    GET /v1/repositories
    GET /v1/repositories?limit=1
    GET /v1/repositories?prefix=mlflow-artifacts:/{word}
    GET /v1/repositories/{repository}
    GET /v1/repositories/{image}
    GET /v1/repositories/spaces/other/{repository} 404
    GET /v1/schemas
    GET /v1/schemas/{word}
    GET /v1/stores?limit=1
    GET /v1/tags?limit=1
    GET /v1/schemas?limit=1
    GET /v1/stores/{store}/pieces?limit=1
    GET /v1/webhooks
    GET /v1/webhooks/{word}
    GET /v1/audit
    GET /v1/audit?limit=1
    OPTIONS /v1/uploads
    OPTIONS /v1/uploads/{tus}
    GET /v1/uploads/{tus}
    HEAD /v1/uploads/{tus}
    GET /v1/uploads/{part}
    GET /v1/uploads/{deferred}
    GET /v1/uploads/{oci}
    GET /v1/uploads/{lfs_open}
    GET /v1/uploads/{session}
    GET /v1/uploads/{etag}
    GET /v1/uploads/{tus}/records?framing=delimited
    GET /v1/uploads/{part}/records?framing=delimited
    GET /api/whoami-v2
    GET /api/models
    GET /api/models?search={word}&full=true
    GET /api/datasets?sort=createdAt
    GET /api/models/{repository}/auth-check
    GET /api/models/{repository}/auth-check/write
    GET /api/models/{repository}/compare/main..t-{word} 422
    GET /api/models/{repository}/tree/main?expand=true
    GET /{repository}.git/HEAD
    GET /{repository}/objects/00/00000000000000000000000000000000000000 404
    GET /api/models/{repository}
    GET /api/models/{repository}/commits/main
    GET /api/models/{repository}/refs
    GET /api/models/{repository}/revision/{commit}
    GET /api/models/{repository}/revision/feat%2F{word}
    GET /api/models/{repository}/tree/main
    GET /api/models/{repository}/tree/main/folder
    GET /{repository}/resolve/main/a.txt
    HEAD /{repository}/resolve/main/m.onnx
    GET /{repository}/resolve/{commit}/a.txt
    GET /{repository}/resolve/t-{word}/a.txt
    GET /datasets/{repository}/resolve/main/a.txt 404
    GET /{repository}/raw/main/a.txt
    HEAD /{repository}/raw/main/m.onnx
    GET /datasets/{repository}/raw/main/a.txt 404
    POST /api/models/{repository}/discussions 422
    GET /api/lfs-files/models/{repository}/{oid_lfs}
    GET /api/models/{image}/refs
    GET /{image}/resolve/v1/a.txt 404
    GET /api/models/{repository}/xet-write-token/main
    GET /api/models/spaces%2Fother/tree/main 404
    GET /api/3.0/mlflow/server-info
    GET /api/2.0/mlflow-artifacts/artifacts
    GET /api/2.0/mlflow-artifacts/artifacts?path={word}
    GET /api/2.0/mlflow-artifacts/artifacts/{word}/small
    GET /api/2.0/mlflow-artifacts/artifacts/{word}/m.onnx
    GET /api/2.0/mlflow-artifacts/presigned/{word}/small
    GET /v2/
    GET /v2/_catalog
    GET /v2/_catalog?n=1
    GET /v2/{image}/tags/list?n=1
    GET /v2/{image}/tags/list
    GET /v2/{image}/blobs/{blob}
    HEAD /v2/{image}/blobs/{blob}
    HEAD /v2/box/mine/blobs/{blob}
    GET /v2/{image}/manifests/v1
    GET /v2/{image}/manifests/{manifest}
    GET /v2/{repository}/manifests/main
    GET /v2/{image}/referrers/{manifest}
    GET /v2/{image}/blobs/uploads/{oci}
    GET /v2/box/mine/blobs/uploads/{oci}
    GET /v2/spaces/other/{image}/manifests/v1 404
"""),
    *_plain("\n".join(f"GET /v1/stores/{{store}}/tensors/{{name}}?format={form}" for form in FORMS if form != "lod")),
    *_plain("GET /v1/stores/{store}/tensors/{name}?format=lod 404"),
]  # fmt: skip

WRITING: Final = [
    _refused(401, _json("POST", "/session", token="psl_nobody")),
    _json("POST", "/v1/stores/{store}/merge"),
    _json("POST", "/v1/stores/{store}/parts", parts=[{"view": "chunks/0"}]),
    _json("PATCH", "/v1/stores/{store}", description="of a stranger"),
    *_plain("""
        PUT /v1/spaces/other 404
        PATCH /v1/spaces/other 404
        PUT /v1/spaces/fresh 404
        DELETE /v1/spaces/other?with_stores=true 404
        DELETE /v1/stores/{store} 409
        DELETE /v1/stores/{store}?force={word}
        DELETE /v1/stores/{word} 409
        POST /v1/stores/{removed}/restore
        POST /v1/stores/{store}/restore
        DELETE /v1/tags/{word}
        DELETE /v1/schemas/{word}
        DELETE /v1/tokens/{token}
        DELETE /v1/webhooks/{word}
        POST /v1/drafts/{word}?tag=of-{word}
        DELETE /api/2.0/mlflow-artifacts/artifacts/{word}/small
        DELETE /v2/{image}/manifests/v1
        DELETE /v2/{image}/manifests/{manifest}
        DELETE /v2/{image}/manifests/{referrer}
        DELETE /v2/{image}/blobs/{blob}
        DELETE /v2/{image}/blobs/uploads/{oci}
        DELETE /api/models/{repository}/branch/feat%2F{word}
        DELETE /api/models/{repository}/tag/t-{word}
        POST /v2/box/mine/blobs/uploads/?mount={blob}&from={image}
        POST /v2/box/mine/blobs/uploads/?mount={blob}&from=spaces%2Fother%2F{image}
        POST /v2/{image}/blobs/uploads/
    """),
    *(
        Call("GET", f"/{{repository}}{page}", headers={"accept": "text/html"})
        for page in ("", "/tree/main", "/tree/main/a.txt", "/blob/main/a.txt", "/commit/{commit}")
    ),
    Call("GET", "/v1/tokens", unordered=True),
    Call("GET", "/v1/tokens?limit=1", unordered=True),
    Call("GET", "/v1/webhooks/{word}/letters", timed=True),
    Call("GET", "/{repository}/info/refs", timed=True),
    Call("POST", "/v1/webhooks/{word}/redeliver", timed=True),
    # A caller who has another space's content sends it: no answer may reveal that it is stored already.
    Call("PUT", "/v1/stores?filename=m.onnx&tag=again", lambda things: model_of(things["word"])),
    Call("POST", "/v1/stores?filename=m.onnx", lambda things: model_of(f"{things['word']} commit")),
    Call("PUT", "/v1/stores?filename=x", lambda things: text_of(things["word"], "blob")),
    Call("PUT", "/v1/stores", lambda things: recipe_of(things["store"], things["word"]), {"content-type": RECIPE}),
    Call("PUT", "/v1/schemas/{word}", lambda _: DESCRIPTORS, {"content-type": "application/protobuf"}),
    _refused(400, Call("PUT", "/v1/schemas/{word}", lambda _: b"no descriptors")),
    _json("POST", "/v1/stores/assemble", uploads={"f": "{part}"}),
    _json("POST", "/v1/stores/assemble", uploads={"f": ["/spaces/other/v1/uploads/{part}"]}, tags=["joined"]),
    _json("POST", "/v1/stores/assemble", recipe="{recipe}"),
    _refused(
        422,
        _json(
            "POST",
            "/v1/stores/register",
            files={"f": "memory://{word}/spaces/other/stores/{store}"},
            tags=["registered"],
        ),
    ),
    _json("PUT", "/v1/tags/moved", store="{store}"),
    _json("PUT", "/v1/tags/{word}", store="mine"),
    _json("PUT", "/v1/tags/moved", store="team/{word}@main"),
    # A bucket is a space, so it has no path of another space. `tests/server/registries/s3` has its calls.
    *_plain("""
    PUT /s3 404
    PUT /s3/bucket 404
    PUT /s3/bucket/key 404
    POST /s3 404
    POST /s3/bucket 404
    POST /s3/bucket/key 404
    DELETE /s3 404
    DELETE /s3/bucket 404
    DELETE /s3/bucket/key 404
    """),
    Call("POST", "/v1/s3-keys", timed=True),
    _json("POST", "/v1/sign", path="/v1/stores/{store}/files/m.onnx"),
    _json("POST", "/v1/sign", path="/v1/stores/../../other/v1/stores/{word}"),
    _json("POST", "/v1/tokens", name="{word}", scopes=["read"]),
    _refused(403, _json("POST", "/v1/tokens", name="all", scopes=["read"], every_space=True)),
    _json("PUT", "/v1/webhooks/{word}", url="{hook}"),
    _refused(400, _json("PUT", "/v1/webhooks/{word}", url="http://127.0.0.1:1/not-allowed")),
    Call(
        "POST",
        "/v1/chunks/missing",
        lambda things: dumped({"chunks": [{"sha256": things["piece"], "size": int(things["piece_size"])}]}),
        JSON,
    ),
    Call(
        "POST",
        "/v1/chunks/missing",
        lambda things: dumped(
            {"stores": [things["store"]], "chunks": [{"sha256": things["piece"], "size": int(things["piece_size"])}]}
        ),
        JSON,
    ),
    Call(
        "POST",
        "/v1/chunks/missing",
        lambda things: dumped(
            {
                "tags": [things["word"], "other:2"],
                "chunks": [{"sha256": things["piece"], "size": int(things["piece_size"])}],
            }
        ),
        JSON,
    ),
    # Uploads, by their ids and by their full URLs.
    Call("POST", "/v1/uploads?filename=new", lambda _: b"", TUS | {"upload-length": "9"}),
    Call("POST", "/v1/uploads", lambda _: b"", TUS | {"upload-concat": "final;/v1/uploads/{part}"}),
    Call(
        "POST", "/v1/uploads", lambda _: b"", TUS | {"upload-concat": "final;http://localhost{place}/v1/uploads/{part}"}
    ),
    *(
        Call("PATCH", f"/v1/uploads/{{{name}}}", lambda _: b"more", TUS | BYTES | {"upload-offset": offset})
        for name, offset in (("tus", "{offset_tus}"), ("oci", "{offset_oci}"), ("lfs_open", "0"))
    ),
    *(
        _refused(409, Call("PATCH", f"/v1/uploads/{{{name}}}", lambda _: b"more", TUS | BYTES | {"upload-offset": "0"}))
        for name in ("tus", "part", "oci", "etag")
    ),
    Call(
        "PATCH",
        "/v1/uploads/{deferred}",
        lambda _: b"more",
        TUS | BYTES | {"upload-offset": "{offset_deferred}", "upload-length": "{length_deferred}"},
    ),
    Call("POST", "/v1/uploads/{tus}", lambda _: b"", TUS | {"x-http-method-override": "DELETE"}),
    Call("POST", "/v1/uploads/{tus}", lambda _: b"", TUS | {"x-http-method-override": "HEAD"}),
    *(
        Call("DELETE", f"/v1/uploads/{{{name}}}", lambda _: b"", TUS)
        for name in ("tus", "deferred", "session", "lfs_open")
    ),
    # The hub.
    _json("POST", "/api/validate-yaml", content="{word}"),
    _json("POST", "/api/repos/create", name="{word}-new", organization="team"),
    _refused(409, _json("POST", "/api/repos/create", name="{word}", organization="team")),
    _json("DELETE", "/api/repos/delete", name="{word}", organization="team"),
    _json("POST", "/api/models/{repository}/paths-info/main", paths=["a.txt"]),
    _json("POST", "/api/models/{repository}/preupload/main", files=[{"path": "a.txt", "size": 5}]),
    _json("POST", "/api/models/{repository}/branch/new", startingPoint="{commit}"),
    _json("POST", "/api/models/{repository}/super-squash/feat%2F{word}", message="squashed"),
    _json("PUT", "/api/models/{repository}/settings", private=False),
    _json("POST", "/api/repos/move", fromRepo="{repository}", toRepo="team/moved"),
    _json("POST", "/api/models/{repository}/branch/x%2F{word}", startingPoint="feat/{word}"),
    _json("POST", "/api/models/{repository}/tag/{commit}", tag="fresh"),
    _batch("staged"),
    _batch("open"),
    _batch("staged", operation="download"),
    _batch("staged", "team/mine"),
    _refused(
        404,
        Call(
            "POST",
            "/datasets/{repository}.git/info/lfs/objects/batch",
            lambda things: dumped({"operation": "upload", "objects": [{"oid": things["oid_open"], "size": 9}]}),
            {"content-type": LFS, "accept": LFS},
        ),
    ),
    *(
        Call("PUT", f"/api/lfs-uploads/models/{{repository}}/{{{name}}}", lambda t: text_of(t["word"], "open") * 20)
        for name in ("lfs_open", "lfs_staged")
    ),
    _refused(404, Call("PUT", "/api/lfs-uploads/models/{repository}/{tus}", lambda t: text_of(t["word"], "open") * 20)),
    Call(
        "PUT",
        "/api/lfs-parts/models/{repository}/{oid_open}/{size_open}/{size_open}/1",
        lambda t: text_of(t["word"], "open") * 20,
    ),
    _json(
        "POST",
        "/api/lfs-parts/models/{repository}/{oid_open}/{size_open}/{size_open}",
        parts=[{"partNumber": 1, "etag": "{lfs_part}"}],
    ),
    _commit(header(), ("lfsFile", {"path": "staged", "algo": "sha256", "oid": "{oid_staged}"})),
    _refused(400, _commit(header(), ("lfsFile", {"path": "open", "algo": "sha256", "oid": "{oid_open}"}))),
    _commit(header(parentCommit="{commit}"), inline("b.txt", b"new")),
    _commit(header(), ("deletedFile", {"path": "a.txt"})),
    Call(
        "POST",
        "/api/models/team%2Fmine/commit/main",
        lambda t: lines(header(), ("lfsFile", {"path": "taken", "algo": "sha256", "oid": t["oid_staged"]})),
        LINES,
    ),
    Call(
        "POST",
        "/api/xet/models/{repository}/{session}/v1/xorbs/default/{xorb}",
        lambda things: xorb_of(text_of(things["word"], "chunk"))[1],
    ),
    *(
        Call(
            "POST",
            f"/api/xet/models/{repository}/{{session}}/v1/shards",
            lambda t: shard_of((text_of(t["word"], "chunk"), [(t["xorb"], len(text_of(t["word"], "chunk")), 0, 1)])),
        )
        for repository in ("{repository}", "team/mine")
    ),
    # MLflow.
    Call("PUT", "/api/2.0/mlflow-artifacts/artifacts/{word}/new", lambda t: text_of(t["word"], "new")),
    Call("PUT", "/api/2.0/mlflow-artifacts/artifacts/{word}/again", lambda t: model_of(t["word"], 20_000)),
    Call("PUT", "/api/2.0/mlflow-artifacts/parts/{mpu}/{word}?number=2", lambda _: b"second"),
    _json("POST", "/api/2.0/mlflow-artifacts/mpu/create/{word}", path="big", num_parts=1),
    *(
        _json(
            "POST",
            f"/api/2.0/mlflow-artifacts/mpu/{step}/{{word}}",
            path="big",
            upload_id="{mpu}",
            parts=[{"part_number": 1, "etag": "{etag}"}],
        )
        for step in ("complete", "abort")
    ),
    # OCI.
    Call("PATCH", "/v2/{image}/blobs/uploads/{oci}", lambda _: b"more"),
    Call("PATCH", "/v2/box/mine/blobs/uploads/{oci}", lambda _: b"more"),
    Call("PUT", "/v2/{image}/blobs/uploads/{oci}?digest={half}", lambda _: b"more"),
    _refused(400, Call("PUT", "/v2/{image}/blobs/uploads/{oci}?digest={blob}", lambda t: text_of(t["word"], "blob"))),
    Call(
        "PUT",
        "/v2/{image}/manifests/{referrer}",
        lambda t: manifest_of(text_of(t["word"], "config"), subject=t["manifest"]),
        {"content-type": MANIFEST},
    ),
    Call(
        "PUT",
        "/v2/{image}/manifests/v2",
        lambda t: manifest_of(text_of(t["word"], "config"), text_of(t["word"], "blob")),
        {"content-type": MANIFEST},
    ),
    Call(
        "PUT",
        "/v2/box/mine/manifests/taken",
        lambda t: manifest_of(text_of("mine", "config"), text_of(t["word"], "blob")),
        {"content-type": MANIFEST},
    ),
    Call(
        "POST",
        "/v2/{image}/blobs/uploads/?digest=sha256:" + sha256(b"whole"),
        lambda _: b"whole",
    ),
]

CALLS: Final = [*READING, *WRITING]
