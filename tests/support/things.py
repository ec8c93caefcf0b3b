"""Content of every kind in a space, and the names by which requests refer to it."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.support.hub import header, inline, xorb_of
from tests.support.serve import Asked, ask
from tests.support.stores import onnx
from tests.support.streams import FRAMED, example

from protoslice.recipes import Copy, RecipeWriter
from protoslice.server.app import Application

Things = dict[str, str]
"""The names of all things that belong to one word: ids, digests, paths of uploads."""

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
LFS: Final = "application/vnd.git-lfs+json"
JSON: Final = {"content-type": "application/json"}
TUS: Final = {"tus-resumable": "1.0.0"}
BYTES: Final = {"content-type": "application/offset+octet-stream"}
LINES: Final = {"content-type": "application/x-ndjson"}
MLFLOW: Final = "/api/2.0/mlflow-artifacts"
DESCRIPTORS: Final = FileDescriptorSet(file=[FileDescriptorProto(name="own.proto", package="own")]).SerializeToString()


def model_of(word: str, size: int = 300) -> bytes:
    """Return the model of a word, with a tensor of `size` bytes and a graph of two nodes."""
    return onnx(size, 40, seed=sum(word.encode()), nodes="ab")


def text_of(word: str, what: str) -> bytes:
    """Return a small file of a word."""
    return f"{what} of {word} and of nobody else".encode()


def sha256(data: bytes) -> str:
    """Return a SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def dumped(content: object) -> bytes:
    """Return a value as JSON."""
    return json.dumps(content).encode()


def lines(*operations: tuple[str, Mapping[str, Any]]) -> bytes:
    """Return the body of a commit."""
    return b"\n".join(dumped({"key": key, "value": value}) for key, value in operations)


def manifest_of(*layers: bytes, subject: str | None = None) -> bytes:
    """Return an OCI manifest, with blobs as layers and the digest of its subject."""
    about = [
        {"mediaType": "application/octet-stream", "digest": f"sha256:{sha256(each)}", "size": len(each)}
        for each in layers
    ]
    more = {} if subject is None else {"subject": {"mediaType": MANIFEST, "digest": subject, "size": 2}}
    return dumped({"schemaVersion": 2, "mediaType": MANIFEST, "config": about[0], "layers": about, **more})


def recipe_of(store: str, word: str) -> bytes:
    """Return a recipe that copies the first bytes of a word's model, which a store has."""
    writer, data = RecipeWriter(), model_of(word)[:20]
    said = writer.file("copy") + writer.copy(Copy(store, "m.onnx", 0, len(data)))
    return said + writer.end(len(data), sha256(data)) + writer.done()


class Filling:
    """The requests of one caller in one space, which create content."""

    def __init__(self, app: Application, space: str, caller: Mapping[str, str], salt: str = "") -> None:
        """Make the content of each word different by `salt`; names do not depend on it."""
        self._app = app
        self._salt = salt
        self._root = "" if space == "default" else f"/spaces/{space}"
        self._caller = caller

    async def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Asked:
        """Send a request and return the answer; raise an error if the request fails."""
        got = await ask(self._app, method, self._root + path, body, {**(headers or {}), **self._caller})
        if got.status >= 300:
            raise RuntimeError(f"{method} {path}: {got}")
        return got

    async def fill(self, word: str, hook: str | None) -> Things:
        """Create content of every kind under names that contain `word`, and return the names.

        Events are sent to the URL `hook`; None sends no events.
        """
        found = {
            "word": word, "repository": f"team/{word}", "image": f"box/{word}", "file": "m.onnx", "name": "weight-0",
            "field": "graph", "node": "a", "mine": "mine",
        }  # fmt: skip
        for fill in (
            self._stores,
            self._repository,
            self._image,
            self._blob_upload,
            self._artifacts,
            self._administration,
        ):
            await fill(word, found)
        await self.begin(found)
        if hook is not None:
            found["hook"] = hook
            await self.ask("PUT", f"/v1/webhooks/{word}", dumped({"url": hook}), JSON)
        return found

    async def begin(self, found: Things) -> None:
        """Begin uploads of every kind that needs only the scope `write`, and put their names into `found`."""
        for begin in (self._uploads, self._parts):
            await begin(found["word"], found)

    async def add_names(self, word: str, name: str) -> None:
        """Give a word's content one more name in every registry."""
        found = json.loads((await self.ask("GET", f"/v1/stores/{word}?names=false")).body)
        await self.ask("PUT", f"/v1/tags/{name}", dumped({"store": found["id"]}), JSON)
        await self.ask("PATCH", f"/v1/stores/{found['id']}", dumped({"description": name}), JSON)
        await self.ask("POST", f"/api/models/team/{word}/branch/{name}", b"{}", JSON)
        data = manifest_of(self._text(word, "config"), self._text(word, "blob"))
        await self.ask("PUT", f"/v2/box/{word}/manifests/{name}", data, {"content-type": MANIFEST})
        await self.ask("PUT", f"{MLFLOW}/artifacts/{word}/{name}", self._text(word, "small"))

    def _model(self, word: str, size: int = 300) -> bytes:
        return model_of(word + self._salt, size)

    def _text(self, word: str, what: str) -> bytes:
        return text_of(word + self._salt, what)

    async def _stores(self, word: str, found: Things) -> None:
        made = await self.ask("PUT", f"/v1/stores?filename=m.onnx&tag={word}", self._model(word))
        found["store"] = json.loads(made.body)["id"]
        listed = json.loads((await self.ask("GET", f"/v1/stores/{word}/pieces?limit=1")).body)["items"][0]
        found["piece"], found["piece_size"] = listed["sha256"], str(listed["size"])
        records = FRAMED["tfrecord"]([example(sum(word.encode())), word.encode()])
        made = await self.ask("PUT", "/v1/stores?filename=r.tfrecord", records)
        found["stream"] = json.loads(made.body)["id"]
        gone = await self.ask("PUT", f"/v1/stores?filename=gone&tag=gone-{word}", self._text(word, "removed"))
        found["removed"] = json.loads(gone.body)["id"]
        await self.ask("DELETE", f"/v1/stores/{found['removed']}?force=gone-{word}")

    async def _uploads(self, word: str, found: Things) -> None:
        begin = TUS | BYTES | {"upload-length": "900", "upload-metadata": f"filename {b64encode(b'f').decode()}"}
        found["tus"] = _id((await self.ask("POST", "/v1/uploads", self._text(word, "tus"), begin)).headers["location"])
        data = self._text(word, "part")
        part = TUS | BYTES | {"upload-length": str(len(data)), "upload-concat": "partial"}
        found["part"] = _id((await self.ask("POST", "/v1/uploads", data, part)).headers["location"])
        recipe = recipe_of(found["store"], word + self._salt)
        whole = part | {"upload-length": str(len(recipe))}
        found["recipe"] = _id((await self.ask("POST", "/v1/uploads", recipe, whole)).headers["location"])
        deferred, data = TUS | BYTES | {"upload-defer-length": "1"}, self._text(word, "deferred")
        found["deferred"] = _id((await self.ask("POST", "/v1/uploads", data, deferred)).headers["location"])
        found |= {"offset_tus": str(len(self._text(word, "tus"))), "offset_deferred": str(len(data))}
        found["length_deferred"] = str(len(data + b"more"))

    async def _repository(self, word: str, found: Things) -> None:
        name, kind = f"team/{word}", LINES
        await self.ask("POST", "/api/repos/create", dumped({"name": word, "organization": "team"}), JSON)
        model = self._model(f"{word} commit")
        small = inline("a.txt", self._text(word, "file")), inline("folder/b.txt", self._text(word, "below"))
        found["oid_lfs"], body = sha256(model), lines(header(), *small, inline("m.onnx", model))
        done = await self.ask("POST", f"/api/models/{name}/commit/main", body, kind)
        found["commit"] = json.loads(done.body)["commitOid"]
        await self.ask("POST", f"/api/models/{name}/branch/feat%2F{word}", b"{}", JSON)
        await self.ask("POST", f"/api/models/{name}/tag/main", dumped({"tag": f"t-{word}"}), JSON)
        for what in ("staged", "open"):
            data = self._text(word, what) * 20
            found[f"oid_{what}"], found[f"size_{what}"] = sha256(data), str(len(data))
            wanted = {"operation": "upload", "objects": [{"oid": sha256(data), "size": len(data)}]}
            batch = await self.ask(
                "POST", f"/{name}.git/info/lfs/objects/batch", dumped(wanted), {"content-type": LFS, "accept": LFS}
            )
            actions = json.loads(batch.body)["objects"][0].get("actions")  # stored bytes need no upload
            found[f"lfs_{what}"] = _id(urlsplit(actions["upload"]["href"]).path) if actions else "none"
        if found["lfs_staged"] != "none":
            at = f"/api/lfs-uploads/models/{name}/{found['lfs_staged']}"
            await self.ask("PUT", at, self._text(word, "staged") * 20)
        at = f"/api/lfs-parts/models/{name}/{found['oid_open']}/{found['size_open']}/{found['size_open']}/1"
        sent_part = await self.ask("PUT", at, self._text(word, "open") * 20)
        found["lfs_part"] = sent_part.headers["etag"].strip('"')
        told = await self.ask("GET", f"/api/models/{name}/xet-write-token/main")
        found["session"] = _id(urlsplit(json.loads(told.body)["casUrl"]).path)
        found["xorb"], sent = xorb_of(self._text(word, "chunk"))
        await self.ask("POST", f"/api/xet/models/{name}/{found['session']}/v1/xorbs/default/{found['xorb']}", sent)

    async def _image(self, word: str, found: Things) -> None:
        base, blob, config = f"/v2/box/{word}", self._text(word, "blob"), self._text(word, "config")
        for data in (blob, config):
            await self.ask("POST", f"{base}/blobs/uploads/?digest=sha256:{sha256(data)}", data)
        found["blob"] = f"sha256:{sha256(blob)}"
        data = manifest_of(config, blob)
        found["manifest"] = f"sha256:{sha256(data)}"
        await self.ask("PUT", f"{base}/manifests/v1", data, {"content-type": MANIFEST})
        about = manifest_of(config, subject=found["manifest"])
        found["referrer"] = f"sha256:{sha256(about)}"
        await self.ask("PUT", f"{base}/manifests/{found['referrer']}", about, {"content-type": MANIFEST})

    async def _blob_upload(self, word: str, found: Things) -> None:
        base = f"/v2/box/{word}"
        begun = await self.ask("POST", f"{base}/blobs/uploads/")
        found["oci"] = _id(begun.headers["location"])
        half = self._text(word, "half")
        await self.ask("PATCH", f"{base}/blobs/uploads/{found['oci']}", half)
        found["half"], found["offset_oci"] = f"sha256:{sha256(half + b'more')}", str(len(half))

    async def _artifacts(self, word: str, found: Things) -> None:
        await self.ask("PUT", f"{MLFLOW}/artifacts/{word}/small", self._text(word, "small"))
        await self.ask("PUT", f"{MLFLOW}/artifacts/{word}/m.onnx", self._model(word, 20_000))

    async def _parts(self, word: str, found: Things) -> None:
        begun = await self.ask("POST", f"{MLFLOW}/mpu/create/{word}", dumped({"path": "big", "num_parts": 2}), JSON)
        found["mpu"] = json.loads(begun.body)["upload_id"]
        sent = await self.ask("PUT", f"{MLFLOW}/parts/{found['mpu']}/{word}?number=1", self._text(word, "in parts"))
        found["etag"] = sent.headers["etag"].strip('"')

    async def _administration(self, word: str, found: Things) -> None:
        made = await self.ask("POST", "/v1/tokens", dumped({"name": word, "scopes": ["read"]}), JSON)
        found["token"] = json.loads(made.body)["id"]
        kind = {"content-type": "application/protobuf"}
        await self.ask("PUT", f"/v1/schemas/{word}", DESCRIPTORS, kind)


def _id(place: str) -> str:
    """Return the last segment of a path."""
    return place.rpartition("/")[2]
