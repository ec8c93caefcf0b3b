"""Calls of Python clients of S3: `s3_calls.py CLIENT ENDPOINT FILE`, with keys in the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NAME, ENDPOINT, FILE = sys.argv[1:]
DATA = Path(FILE).read_bytes()
KEY, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
OBJECT = "tags/llm:1/model.onnx"


def s3fs() -> None:
    """List, look at and read an object."""
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
        client_options={"allow_http": True},
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
    host = f"localhost:{ENDPOINT.removesuffix('/s3').rpartition(':')[2]}"
    base.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{KEY}', SECRET '{SECRET}', ENDPOINT '{host}', "
        "URL_STYLE 'path', USE_SSL false, REGION 'auto')"
    )
    found = base.execute("SELECT filename, content FROM read_blob('s3://default/tags/llm:1/*')").fetchall()
    assert found == [(f"s3://default/{OBJECT}", DATA)]
    print(duckdb.__version__)


def runai() -> None:
    """Stream an ONNX model as safetensors."""
    from importlib.metadata import version

    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file("s3://default/tags/llm:1/@safetensors/model.safetensors")
        found = {name: tensor.numpy().tobytes() for name, tensor in streamer.get_tensors()}
    assert len(found) == 3, sorted(found)
    assert all(data in DATA for data in found.values())
    print(version("runai-model-streamer"))


globals()[NAME]()
