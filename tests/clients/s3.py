"""S3 clients against closed and open services, reached directly and through nginx with TLS and a path.

Each client lists, examines and reads the files of stores. A service that requires tokens refuses files that a token may
not read.
"""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import CALLS, built_with_go, good, programs, refused
from tests.deployment.nginx.front import Nginx, free_port
from tests.support.environments import python_of
from tests.support.golden import MODELS
from tests.support.golden import folder as golden
from tests.support.serve import service_process
from tests.support.stores import onnx

from protoslice.client import Client

_PACKAGES: Final = {
    "boto3": (),
    "s3fs": ("s3fs==2026.9.0",),
    "obstore": ("obstore==0.12.1",),
    "duckdb": ("duckdb==1.5.5", "duckdb-extension-httpfs==1.5.5"),
    "runai": ("runai-model-streamer==0.17.1", "runai-model-streamer-s3==0.17.1"),
}
PYTHON_CLIENTS: Final = tuple(_PACKAGES)
_MODELS: Final = {"runai": ("tf_ckpt_sharded", "gguf_splits")}
"""Models of other formats that a client reads as safetensors."""
_OBJECT: Final = "s3://default/tags/llm:1/model.onnx"
_PATH: Final = "/hub"
_MC: Final = "v0.0.0-20250313080218-cf909e1063a9"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A service with a model, the way to reach it, and the environment of a client that may read it."""

    place: str
    endpoint: str
    domain: str
    """The host and port, as the endpoint for clients that take no path in the endpoint."""
    authority: Path | None
    """The certificate that clients trust; None without TLS."""
    closed: bool
    file: Path
    env: dict[str, str]

    @property
    def verify(self) -> ssl.SSLContext | bool:
        """The certificate setting with which httpx trusts the service."""
        return True if self.authority is None else ssl.create_default_context(cafile=str(self.authority))


def _everywhere(folder: Path, call: Callable[[Bucket, Path], str], models: Sequence[str] = ()) -> str:
    """Call a client with every bucket; return the client's version and the buckets."""
    places, version = list[str](), ""
    for closed in (True, False):
        with _service(folder / f"closed-{closed}", closed, models) as buckets:
            for bucket in buckets:
                work = folder / bucket.place.replace(" ", "-")
                work.mkdir()
                print(f"  {bucket.place}", flush=True)
                version = call(bucket, work)
                places.append(bucket.place)
    return f"{version}: {', '.join(places)}"


@contextmanager
def _service(folder: Path, closed: bool, models: Sequence[str]) -> Iterator[Sequence[Bucket]]:
    """Serve a model by two tags, and other models; yield the ways to reach it."""
    folder.mkdir()
    file = folder / "model.onnx"
    file.write_bytes(onnx(400_000, 30_000, 64))
    with ExitStack() as stack:
        secure = free_port()
        settings = {
            "STORAGE": (folder / "storage").as_uri(),
            "S3_DOMAIN": "localhost",
            "PUBLIC_URL": f"https://127.0.0.1:{secure}{_PATH}",
            "AUTH": "tokens" if closed else "open",
        }
        named = {f"PROTOSLICE_{name}": value for name, value in settings.items()}
        running = stack.enter_context(service_process(settings=named))
        token = ""
        if closed:
            assert running.running.stdout is not None
            found = re.search(r"psl_\w+", running.running.stdout.readline())
            assert found is not None
            token = found[0]
        with Client(running.url, headers={"authorization": f"Bearer {token}"} if closed else {}) as client:
            client.push(file, tags=["llm:1", "a+b-c"], resume=False)
            client.create_space("other")
            for model in models:
                client.push(golden(model), tags=[model], resume=False)
        keys = _keys(running.url, token) if closed else ("any", "any-secret")
        authority = _nginx(stack, folder, running.server.port, secure)
        what = "closed" if closed else "open"
        yield [
            _bucket(f"{what}", running.url, None, closed, file, keys),
            _bucket(f"{what} behind nginx", settings["PUBLIC_URL"], authority, closed, file, keys),
        ]


def _keys(url: str, token: str) -> tuple[str, str]:
    """Return S3 keys of a new token with read access."""
    with httpx.Client(base_url=url) as http:
        made = http.post(
            "/v1/tokens",
            json={"name": "reader", "scopes": ["read"]},
            headers={"authorization": f"Bearer {token}"},
        )
        reader = made.raise_for_status().json()["token"]
        keys = http.post("/v1/s3-keys", headers={"authorization": f"Bearer {reader}"}).raise_for_status().json()
    return keys["access_key_id"], keys["secret_access_key"]


def _nginx(stack: ExitStack, folder: Path, upstream: int, secure: int) -> Path:
    """Run nginx with TLS and a path in front of a service; return the certificate."""
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)

    def edit(text: str) -> str:
        below = f"location {_PATH}/ {{ proxy_pass http://protoslice/; }}\n        location / {{"
        for old, new in (
            ("server protoslice:8000;", "server 127.0.0.1:8000;"),
            ("listen 8443", f"listen 127.0.0.1:{secure}"),
            ("/run/secrets", str(folder)),
            ("        http2 on;\n", ""),  # Debian 12 has an older nginx
            ("location / {", below),
        ):
            assert old in text
            text = text.replace(old, new)
        return text

    running = Nginx("nginx-tls.conf", folder, upstream, edit, other=upstream)
    running.start()
    stack.callback(running.end)
    return folder / "tls.crt"


def _bucket(place: str, url: str, authority: Path | None, closed: bool, file: Path, keys: tuple[str, str]) -> Bucket:
    env = {
        "AWS_ACCESS_KEY_ID": keys[0],
        "AWS_SECRET_ACCESS_KEY": keys[1],
        "AWS_ENDPOINT_URL": f"{url}/s3",
        "AWS_DEFAULT_REGION": "auto",
        "AWS_EC2_METADATA_DISABLED": "true",
        "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
        "MODELS": str(MODELS),
    }
    domain = f"localhost:{httpx.URL(url).port}"
    if authority is not None:
        env |= {"AWS_CA_BUNDLE": str(authority), "SSL_CERT_FILE": str(authority)}
    return Bucket(place, f"{url}/s3", domain, authority, closed, file, env)


def run_python(name: str, folder: Path) -> str:
    """Run the calls of a Python client in an environment with its packages."""
    packages = _PACKAGES[name]
    python = python_of(*packages) if packages else Path(sys.executable)

    def call(bucket: Bucket, work: Path) -> str:
        words = (CALLS / "s3_calls.py", name, bucket.endpoint, bucket.domain, bucket.file)
        return good(python, *words, folder=work, env=bucket.env).strip()

    return _everywhere(folder, call, _MODELS.get(name, ()))


def run_aws(folder: Path) -> str:
    """List, copy and presign by aws-cli 1; check that other spaces, other secrets and changes are refused."""
    aws = python_of("awscli==1.46.3"), "-m", "awscli"

    def call(bucket: Bucket, work: Path) -> str:
        env, data = bucket.env, bucket.file.read_bytes()
        spaces = good(*aws, "s3", "ls", folder=work, env=env).split()[2::3]
        assert spaces == (["default"] if bucket.closed else ["default", "other"])
        listed = good(*aws, "s3", "ls", "--recursive", "s3://default/", folder=work, env=env)
        assert [line.split()[-1] for line in listed.splitlines()] == ["tags/a+b-c/model.onnx", "tags/llm:1/model.onnx"]
        good(*aws, "s3", "cp", "--quiet", _OBJECT, work / "copy", folder=work, env=env)
        assert (work / "copy").read_bytes() == data
        url = good(*aws, "s3", "presign", _OBJECT, folder=work, env=env).strip()
        assert httpx.get(url, verify=bucket.verify).raise_for_status().content == data
        refused("AccessDenied", *aws, "s3", "cp", bucket.file, "s3://default/x", folder=work, env=env)
        if bucket.closed:
            refused("AccessDenied", *aws, "s3", "ls", "s3://other/", folder=work, env=env)
            wrong = env | {"AWS_SECRET_ACCESS_KEY": "0" * 64}
            refused("SignatureDoesNotMatch", *aws, "s3", "ls", "s3://default/", folder=work, env=wrong)
        return good(*aws, "--version", folder=work).split()[0]

    return _everywhere(folder, call)


def run_rclone(folder: Path) -> str:
    """List and copy a folder by rclone."""
    programs("rclone")

    def call(bucket: Bucket, work: Path) -> str:
        options = ["--config", "/dev/null", "--s3-provider", "Other", "--s3-env-auth", "--s3-endpoint", bucket.endpoint]
        options += [] if bucket.authority is None else ["--ca-cert", str(bucket.authority)]
        env = {name: value for name, value in bucket.env.items() if name != "AWS_CA_BUNDLE"}  # it takes only --ca-cert
        listed = good("rclone", *options, "lsf", "-R", "--files-only", ":s3:default/tags", folder=work, env=env)
        assert listed.split() == ["a+b-c/model.onnx", "llm:1/model.onnx"]
        good("rclone", *options, "copy", ":s3:default/tags/llm:1", work / "copy", folder=work, env=env)
        assert (work / "copy/model.onnx").read_bytes() == bucket.file.read_bytes()
        return good("rclone", "version", folder=work).splitlines()[0]

    return _everywhere(folder, call)


def run_dvc(folder: Path) -> str:
    """Get a file by DVC, and import one by its URL."""
    dvc = python_of("dvc[s3]==3.67.1"), "-m", "dvc"

    def call(bucket: Bucket, work: Path) -> str:
        env, option = bucket.env, f"endpointurl={bucket.endpoint}"
        good(*dvc, "get-url", _OBJECT, "got.onnx", "--fs-config", option, folder=work, env=env)
        assert (work / "got.onnx").read_bytes() == bucket.file.read_bytes()
        good(*dvc, "init", "--no-scm", "-q", folder=work, env=env)
        good(*dvc, "import-url", _OBJECT, "imported.onnx", "--fs-config", option, folder=work, env=env)
        assert (work / "imported.onnx").read_bytes() == bucket.file.read_bytes()
        return f"dvc {good(*dvc, '--version', folder=work).strip()}"

    return _everywhere(folder, call)


def run_mc(folder: Path) -> str:
    """List, examine and copy a file by MinIO's mc, which takes no path in an endpoint."""
    mc = built_with_go("mc", "github.com/minio/mc", _MC)

    def call(bucket: Bucket, work: Path) -> str:
        scheme = "http" if bucket.authority is None else "https"
        key, secret = bucket.env["AWS_ACCESS_KEY_ID"], bucket.env["AWS_SECRET_ACCESS_KEY"]
        env = {"MC_HOST_models": f"{scheme}://{key}:{secret}@{bucket.domain}"}
        env |= {} if bucket.authority is None else {"SSL_CERT_FILE": str(bucket.authority)}
        target = "models/default/tags/llm:1/model.onnx"
        listed = good(mc, "ls", "--recursive", "models/default/tags/", folder=work, env=env)
        assert [line.split()[-1] for line in listed.splitlines()] == ["a+b-c/model.onnx", "llm:1/model.onnx"]
        assert "model.onnx" in good(mc, "stat", target, folder=work, env=env)
        good(mc, "cp", "--quiet", target, work / "copy", folder=work, env=env)
        assert (work / "copy").read_bytes() == bucket.file.read_bytes()
        return f"mc {_MC}"

    return _everywhere(folder, call)


def run_kserve(folder: Path) -> str:
    """Download a model by the storage initializer of KServe."""
    package = "kserve-storage==0.21.0"
    python = python_of(package)

    def call(bucket: Bucket, work: Path) -> str:
        (work / "wanted").mkdir()
        (work / "wanted/model.onnx").write_bytes(bucket.file.read_bytes())
        words = (CALLS / "kserve_calls.py", work / "wanted", "s3://default/tags/llm:1")
        good(python, *words, folder=work, env=bucket.env)
        return package.replace("==", " ")

    return _everywhere(folder, call)
