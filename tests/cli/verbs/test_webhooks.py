"""Webhooks on the command line, against a service that delivers to a receiver of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.receiver import running_receiver
from tests.support.serve import service_process
from tests.support.stores import onnx


def test_a_webhook_from_put_to_rm(call: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(onnx(1000))
    with running_receiver() as receiver:
        settings = {
            "PROTOSLICE_STORAGE": (tmp_path / "storage").as_uri(),
            "PROTOSLICE_SPACE_WATERMARK_BYTES": "0",
            "PROTOSLICE_WEBHOOK_ALLOW": receiver.url.removesuffix("/hooks"),
            "PROTOSLICE_WEBHOOK_NETWORKS": "127.0.0.1",
        }
        with service_process(settings=settings) as service:
            site = {"PROTOSLICE_URL": service.url}
            secret = call("webhook", "put", "ci", receiver.url, "--event", "tag.set", **site).stdout.strip()
            assert secret.startswith("whsec_")
            assert secret not in call("webhook", "ls", "--json", **site).stdout
            assert receiver.url in call("webhook", "ls", **site).stdout
            call("push", tmp_path / "m.onnx", "--tag", "m:1", **site)
            assert receiver.came.wait(20)
            assert receiver.events() == [("tag.set", "m:1")]
            assert receiver.is_signed(0, secret)

            receiver.status = 410
            receiver.came.clear()
            call("tag", "m:2", "@m:1", **site)
            assert receiver.came.wait(20)
            dead: list[dict[str, Any]] = []
            while not dead:  # the letter is written once the answer has come
                dead = json.loads(call("webhook", "letters", "ci", "--dead", "--json", **site).stdout)
            assert [(each["subject"], each["error"]) for each in dead] == [("m:2", "status 410")]
            receiver.status = 204
            receiver.came.clear()
            assert "1 events" in call("webhook", "redeliver", "ci", **site).stdout
            assert receiver.came.wait(20)
            assert receiver.events()[-1] == ("tag.set", "m:2")
            call("webhook", "rm", "ci", **site)
            assert call("webhook", "ls", "--json", **site).stdout.strip() == "[]"
