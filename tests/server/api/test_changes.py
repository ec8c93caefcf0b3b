"""The audit over HTTP: who may read it, and what it has of each change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.oidc.trusting import trust_file
from tests.support.issuer import running_issuer
from tests.support.serve import ask
from tests.support.stores import onnx

from protoslice.server.app import Application
from protoslice.server.auth.permissions import EVERY_SPACE, Scope


async def changes(app: Application, token: str, path: str = "/spaces/own/v1/audit") -> list[dict[str, Any]]:
    answer = await ask(app, "GET", path, headers=bearer(token))
    assert answer.status == 200, answer.text
    items: list[dict[str, Any]] = json.loads(answer.body)["items"]
    return items


async def test_changes_name_who_what_and_subject() -> None:
    async with closed_service() as app:
        writer, admin = await token_for(app, Scope.WRITE, Scope.DELETE), await token_for(app, Scope.ADMIN)
        path = "/spaces/own/v1/stores"
        made = await ask(app, "PUT", f"{path}?filename=m.onnx&tag=m:1", body=onnx(100), headers=bearer(writer))
        store = json.loads(made.body)["id"]
        await ask(app, "DELETE", f"{path}/{store}?force=m:1", headers=bearer(writer))
        found = await changes(app, admin)
        assert [(each["what"], each["subject"], each["who"]) for each in found[:4]] == [
            ("store.removed", store, "t"),
            ("tag.removed", "m:1", "t"),
            ("tag.set", "m:1", "t"),
            ("store.created", store, "t"),
        ]
        assert found[0]["transaction"] == found[1]["transaction"] != found[2]["transaction"]
        assert [each["what"] for each in found[4:]] == ["token.created", "token.created"]
        of_tag = await changes(app, admin, "/spaces/own/v1/audit?subject=m:1")
        assert [each["what"] for each in of_tag] == ["tag.removed", "tag.set"]
        secret = admin.rpartition("_")[2]
        assert secret not in json.dumps(found)


async def test_callers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    rules = ("claims = { sub = ['a', 'b'] }\nspace = 'own'\nscopes = ['write']",)
    with running_issuer() as issuer:
        async with closed_service(issuers=trust_file(tmp_path, issuer, rules=rules, more="name = 'nick'")) as app:
            tokens = [await token_for(app, Scope.WRITE) for _ in range(2)]  # both are named `t`
            callers = [*tokens, *(issuer.token(sub=subject, nick="t") for subject in "ab")]
            path, stores = "/spaces/own/v1/stores", []
            for number, caller in enumerate(callers):
                made = await ask(app, "PUT", f"{path}?filename=m&tag=m:{number}", b"m%d" % number, bearer(caller))
                stores.append(json.loads(made.body)["id"])
            admin = await token_for(app, Scope.ADMIN)
            found = [each for each in await changes(app, admin) if each["what"] == "store.created"][::-1]
            assert [(each["subject"], each["who"]) for each in found] == [(store, "t") for store in stores]
            ids = [each["who_id"] for each in found]
            assert len(set(ids)) == 4
            assert ids[:2] == [token[len("psl_") :][: len(ids[0])] for token in tokens]
            listed = json.loads((await ask(app, "GET", path, headers=bearer(admin))).body)["items"][::-1]
            assert [(each["uploader"], each["uploader_id"]) for each in listed] == [("t", id) for id in ids]
            tag = json.loads((await ask(app, "GET", f"{path}/m:3", headers=bearer(admin))).body)
            assert tag["uploader_id"] == ids[3]


async def test_admins_of_all_spaces_see_what_concerns_all() -> None:
    async with closed_service() as app:
        admin = await token_for(app, Scope.ADMIN, space=EVERY_SPACE)
        typed = bearer(admin) | {"content-type": "application/json"}
        await ask(app, "PUT", "/v1/spaces/own", b'{"quota_stores": 5}', typed)
        found = await changes(app, admin, "/v1/audit?every_space=true")
        assert [(each["what"], each["subject"]) for each in found if each["what"].startswith("space.")] == [
            ("space.changed", "own"),
            ("space.created", "other"),
            ("space.created", "own"),
        ]
        assert found[0]["detail"]["quota_stores"] == 5
        own = await token_for(app, Scope.ADMIN)
        refused = await ask(app, "GET", "/spaces/own/v1/audit?every_space=true", headers=bearer(own))
        assert refused.status == 403


async def test_changes_of_settings_are_recorded() -> None:
    async with closed_service(webhook_allow=("https://hooks.example/",)) as app:
        admin = bearer(await token_for(app, *Scope)) | {"content-type": "application/json"}
        place = "/spaces/own"
        hook = b'{"url": "https://hooks.example/x"}'
        types = descriptor_pb2.FileDescriptorSet(
            file=[descriptor_pb2.FileDescriptorProto(name="k.proto", package="k", syntax="proto3")]
        )
        schema = admin | {"content-type": "application/protobuf"}
        repository = b'{"organization": "ann", "name": "net"}'
        made = await ask(app, "POST", f"{place}/v1/tokens", body=b'{"name": "x", "scopes": ["read"]}', headers=admin)
        token = json.loads(made.body)["id"]
        for method, path, body, headers in (
            ("DELETE", f"/v1/tokens/{token}", b"", admin),
            ("PUT", "/v1/webhooks/ci", hook, admin),
            ("DELETE", "/v1/webhooks/ci", b"", admin),
            ("PUT", "/v1/schemas/k", types.SerializeToString(), schema),
            ("DELETE", "/v1/schemas/k", b"", admin),
            ("POST", "/api/repos/create", repository, admin),
            ("DELETE", "/api/repos/delete", repository, admin),
        ):
            answer = await ask(app, method, f"{place}{path}", body=body, headers=headers)
            assert answer.status < 300, (path, answer.text)
        found = json.loads((await ask(app, "GET", f"{place}/v1/audit", headers=admin)).body)["items"]
        assert [(each["what"], each["subject"]) for each in reversed(found)][1:] == [
            ("token.created", token),
            ("token.revoked", token),
            ("webhook.set", "ci"),
            ("webhook.removed", "ci"),
            ("schema.set", "k"),
            ("schema.removed", "k"),
            ("repository.created", "ann/net"),
            ("repository.removed", "ann/net"),
        ]
        assert {each["who"] for each in found[:-1]} == {"t"}
