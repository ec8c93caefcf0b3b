"""Repositories of a service are listed in words and as JSON."""

from __future__ import annotations

import json
from typing import Any

import httpx
from tests.support.hub import commit
from tests.support.stores import onnx


def test_repositories_are_listed(call: Any, service: str) -> None:
    with httpx.Client(base_url=service, timeout=30) as client:
        for name in ("full", "bare"):
            client.post("/api/repos/create", json={"organization": "shown", "name": name})
        commit(client, "models/shown/full", {"m.onnx": onnx(1000)})
    lines = call("ls", "--repositories", "--url", service).stdout.splitlines()[1:]
    bare, full = [line for line in lines if line.startswith("shown/")]
    assert bare.split()[0] == "shown/bare"
    assert full.split()[0] == "shown/full"
    assert full.split()[-2:] == ["onnx.ModelProto", "hub"]
    output = json.loads(call("ls", "--repositories", "--json", "--url", service).stdout)
    heads = [(each["name"], each["ref"]) for each in output if each["name"].startswith("shown/")]
    assert heads == [("shown/bare", None), ("shown/full", "shown/full@main")]
    assert "without a search" in call("ls", "--repositories", "--tag", "x", "--url", service, code=2).stderr
