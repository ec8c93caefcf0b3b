"""Calls of Python S3 clients: `s3_calls.py CLIENT ENDPOINT DOMAIN FILE`, with keys in the environment."""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from pathlib import Path

NAME, ENDPOINT, DOMAIN, FILE = sys.argv[1:]
DATA = Path(FILE).read_bytes()
KEY, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
OBJECT = "tags/llm:1/model.onnx"
AUTHORITY = os.environ.get("SSL_CERT_FILE")
"""The certificate to trust; None without TLS."""


def boto3() -> None:
    """List objects, get an object's facts, and read it."""
    import boto3

    s3 = boto3.client("s3")
    listed = s3.list_objects_v2(Bucket="default", Prefix="tags/")["Contents"]
    assert [each["Key"] for each in listed] == ["tags/a+b-c/model.onnx", OBJECT]
    assert s3.head_object(Bucket="default", Key=OBJECT)["ContentLength"] == len(DATA)
    assert s3.get_object(Bucket="default", Key=OBJECT, Range="bytes=10-99")["Body"].read() == DATA[10:100]
    s3.download_file("default", OBJECT, "copy")
    assert Path("copy").read_bytes() == DATA
    print(boto3.__version__)


def s3fs() -> None:
    """List objects, get an object's facts, and read it."""
    import s3fs

    files = s3fs.S3FileSystem(client_kwargs={"endpoint_url": ENDPOINT})
    assert files.find("default/tags") == ["default/tags/a+b-c/model.onnx", f"default/{OBJECT}"]
    assert files.info(f"default/{OBJECT}")["size"] == len(DATA)
    assert files.cat_file(f"default/{OBJECT}", start=10, end=100) == DATA[10:100]
    assert files.cat(f"default/{OBJECT}") == DATA
    print(s3fs.__version__)


def obstore() -> None:
    """List and read an object."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "default",
        endpoint=ENDPOINT,
        access_key_id=KEY,
        secret_access_key=SECRET,
        region="auto",
        client_options={"allow_http": True, "allow_invalid_certificates": AUTHORITY is not None},
    )
    assert OBJECT in [each["path"] for page in store.list("tags/") for each in page]
    assert bytes(store.get_range(OBJECT, start=10, end=100)) == DATA[10:100]
    assert bytes(store.get(OBJECT).bytes()) == DATA
    print(obstore.__version__)


def duckdb() -> None:
    """Read objects by a pattern, with an endpoint that has no path."""
    import duckdb
    import duckdb_extension_httpfs

    (extension,) = Path(next(iter(duckdb_extension_httpfs.__path__))).rglob("httpfs.duckdb_extension")
    base = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    base.execute(f"LOAD '{extension}'")
    if AUTHORITY is not None:
        base.execute(f"SET ca_cert_file = '{AUTHORITY}'; SET enable_server_cert_verification = true")
    base.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{KEY}', SECRET '{SECRET}', ENDPOINT '{DOMAIN}', "
        f"URL_STYLE 'path', USE_SSL {AUTHORITY is not None}, REGION 'auto')"
    )
    found = base.execute("SELECT filename, content FROM read_blob('s3://default/tags/llm:1/*')").fetchall()
    assert found == [(f"s3://default/{OBJECT}", DATA)]
    print(duckdb.__version__)


def runai() -> None:
    """Stream models of ONNX, TensorFlow and GGUF as safetensors."""
    from importlib.metadata import version

    from runai_model_streamer import SafetensorsStreamer

    def streamed(tag: str) -> dict[str, bytes]:
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(f"s3://default/tags/{tag}/@safetensors/model.safetensors")
            return {name: tensor.numpy().tobytes() for name, tensor in streamer.get_tensors()}

    found = streamed("llm:1")
    assert len(found) == 3, sorted(found)
    assert all(data in DATA for data in found.values())
    for model in ("tf_ckpt_sharded", "gguf_splits"):
        expected = json.loads(Path(os.environ["MODELS"], model, "expected.json").read_text())["tensors"]
        wanted = {each["name"]: each["sha256"] for each in expected if each["dtype"] != "STRING"}
        assert {name: sha256(data).hexdigest() for name, data in streamed(model).items()} == wanted, model
    print(version("runai-model-streamer"))


globals()[NAME]()
