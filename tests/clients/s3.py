"""Clients of S3 against a closed service: list, look at and read the files of stores, and what they are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import CALLS, Service, good, programs, refused
from tests.support.environments import python_of
from tests.support.serve import service_process
from tests.support.stores import onnx

_PACKAGES: Final = {
    "s3fs": ("s3fs==2026.9.0",),
    "obstore": ("obstore==0.12.1",),
    "duckdb": ("duckdb==1.5.5", "duckdb-extension-httpfs==1.5.5"),
    "runai": ("runai-model-streamer==0.17.1", "runai-model-streamer-s3==0.17.1"),
}
PYTHON_CLIENTS: Final = tuple(_PACKAGES)
_OBJECT: Final = "s3://default/tags/llm:1/model.onnx"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A closed service with a model, and the environment of a client that may read it."""

    endpoint: str
    file: Path
    env: dict[str, str]


@contextmanager
def _bucket(folder: Path) -> Iterator[Bucket]:
    """Serve a model by two tags, with the S3 keys of a token that reads."""
    file = folder / "model.onnx"
    file.write_bytes(onnx(400_000, 30_000, 64))
    settings = {"STORAGE": (folder / "storage").as_uri(), "AUTH": "tokens", "S3_DOMAIN": "localhost"}
    with service_process(settings={f"PROTOSLICE_{name}": value for name, value in settings.items()}) as running:
        assert running.running.stdout is not None
        found = re.search(r"psl_\w+", running.running.stdout.readline())
        assert found is not None
        service = Service(running.url, found[0])
        with httpx.Client(base_url=service.url, headers={"authorization": f"Bearer {service.token}"}) as http:
            tags = {"tag": ["llm:1", "a+b-c"], "filename": file.name}
            http.put("/v1/stores", params=tags, content=file.read_bytes()).raise_for_status()
            http.put("/v1/spaces/other").raise_for_status()
            token = http.post("/v1/tokens", json={"name": "reader", "scopes": ["read"]}).json()["token"]
            keys = http.post("/v1/s3-keys", headers={"authorization": f"Bearer {token}"}).raise_for_status().json()
        env = {
            "AWS_ACCESS_KEY_ID": keys["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": keys["secret_access_key"],
            "AWS_ENDPOINT_URL": f"{service.url}/s3",
            "AWS_DEFAULT_REGION": "auto",
            "AWS_EC2_METADATA_DISABLED": "true",
            "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
        }
        yield Bucket(f"{service.url}/s3", file, env)


def run_python(name: str, folder: Path) -> str:
    """Run the calls of a Python client in an environment of its packages."""
    python = python_of(*_PACKAGES[name])
    with _bucket(folder) as bucket:
        return good(python, CALLS / "s3_calls.py", name, bucket.endpoint, bucket.file, folder=folder, env=bucket.env)


def run_aws(folder: Path) -> str:
    """List, copy and presign by aws-cli 1; other spaces, other secrets and changes are refused."""
    aws = python_of("awscli==1.46.3").parent / "aws"
    with _bucket(folder) as bucket:
        env = bucket.env
        assert good(aws, "s3", "ls", folder=folder, env=env).split()[-1] == "default"
        listed = good(aws, "s3", "ls", "--recursive", "s3://default/", folder=folder, env=env)
        assert [line.split()[-1] for line in listed.splitlines()] == ["tags/a+b-c/model.onnx", "tags/llm:1/model.onnx"]
        good(aws, "s3", "cp", "--quiet", _OBJECT, folder / "copy", folder=folder, env=env)
        assert (folder / "copy").read_bytes() == bucket.file.read_bytes()
        url = good(aws, "s3", "presign", _OBJECT, folder=folder, env=env).strip()
        assert httpx.get(url).raise_for_status().content == bucket.file.read_bytes()
        refused("AccessDenied", aws, "s3", "ls", "s3://other/", folder=folder, env=env)
        refused("AccessDenied", aws, "s3", "cp", bucket.file, "s3://default/x", folder=folder, env=env)
        wrong = env | {"AWS_SECRET_ACCESS_KEY": "0" * 64}
        refused("SignatureDoesNotMatch", aws, "s3", "ls", "s3://default/", folder=folder, env=wrong)
    return good(aws, "--version", folder=folder).split()[0]


def run_rclone(folder: Path) -> str:
    """List and copy a folder by rclone."""
    programs("rclone")
    with _bucket(folder) as bucket:
        options = ["--config", "/dev/null", "--s3-provider", "Other", "--s3-env-auth", "--s3-endpoint", bucket.endpoint]
        listed = good(
            "rclone", *options, "lsf", "-R", "--files-only", ":s3:default/tags", folder=folder, env=bucket.env
        )
        assert listed.split() == ["a+b-c/model.onnx", "llm:1/model.onnx"]
        good("rclone", *options, "copy", ":s3:default/tags/llm:1", folder / "copy", folder=folder, env=bucket.env)
        assert (folder / "copy/model.onnx").read_bytes() == bucket.file.read_bytes()
    return good("rclone", "version", folder=folder).splitlines()[0]


def run_dvc(folder: Path) -> str:
    """Get a file by DVC, and import one by its URL."""
    dvc = python_of("dvc[s3]==3.67.1").parent / "dvc"
    with _bucket(folder) as bucket:
        env = bucket.env
        option = f"endpointurl={bucket.endpoint}"
        good(dvc, "get-url", _OBJECT, "got.onnx", "--fs-config", option, folder=folder, env=env)
        assert (folder / "got.onnx").read_bytes() == bucket.file.read_bytes()
        good(dvc, "init", "--no-scm", "-q", folder=folder, env=env)
        good(dvc, "import-url", _OBJECT, "imported.onnx", "--fs-config", option, folder=folder, env=env)
        assert (folder / "imported.onnx").read_bytes() == bucket.file.read_bytes()
    return f"dvc {good(dvc, '--version', folder=folder).strip()}"
