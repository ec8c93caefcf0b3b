"""The fixtures of the command line's tests: a live service over a directory, a stored model, and the program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli import makers
from tests.support.serve import service_process
from typer.testing import CliRunner, Result

from protoslice import schema
from protoslice.cli import app as program
from protoslice.client import Client

Call = Callable[..., Result]


@pytest.fixture(scope="package")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that holds the service's stores."""
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="package")
def service(storage: Path) -> Iterator[str]:
    """Run a service in a process; yield its address."""
    settings = {
        "PROTOSLICE_STORAGE": storage.as_uri(),
        "PROTOSLICE_SPACE_WATERMARK_BYTES": "1",
        "PROTOSLICE_LOG_LEVEL": "error",
    }
    with service_process(settings=settings) as running:
        yield running.url


@dataclass(frozen=True, slots=True)
class ClosedService:
    """A service that requires tokens: its address, its storage, and a token with all rights."""

    url: str
    storage: Path
    admin: str


@pytest.fixture(scope="package")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedService]:
    """Run a service that requires tokens, in a process."""
    folder = tmp_path_factory.mktemp("closed")
    settings = {"PROTOSLICE_STORAGE": folder.as_uri(), "PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process(settings=settings | {"PROTOSLICE_AUTH": "tokens"}) as service:
        assert service.running.stdout is not None
        yield ClosedService(service.url, folder, service.running.stdout.readline().strip().rpartition(" ")[2])


@pytest.fixture(scope="module")
def call(service: str, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Return a function that runs a verb with PROTOSLICE_URL set, and asserts its exit code and error line.

    `given` is the verb's standard input. The user's configuration and default storage are not used.
    """
    home = {name: str(tmp_path_factory.mktemp("home")) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")}

    def call(*args: object, code: int = 0, url: str | None = None, given: str | None = None, **more: str) -> Result:
        environment = {"PROTOSLICE_URL": service if url is None else url, **home, **more}
        done = CliRunner().invoke(program.app, [str(arg) for arg in args], input=given, env=environment)
        assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
        if code not in {0, 2}:
            assert done.stderr.startswith("protoslice: ") or done.stdout, done.stderr
            assert done.stderr.count("\n") <= 1, done.stderr
        return done

    return call


@pytest.fixture(scope="session")
def graph_of() -> Callable[..., bytes]:
    """Return a function that makes a GraphDef of tensors."""
    return makers.graph_of


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of four constants."""
    folder = tmp_path_factory.mktemp("model")
    makers.graph(folder)
    return folder / "graph.pb"


@pytest.fixture(scope="module")
def changed(model: Path) -> Path:
    """The same graph with another constant in the third place, and one more constant at the end."""
    return model.parent / "changed/graph.pb"


@pytest.fixture(scope="module")
def store(service: str, model: Path) -> str:
    """Return the name of the model's store on the command line."""
    with Client(service) as client:
        client.push(model, tags=["model:1"], min_chunk="64KiB")
    return "@model:1"


@pytest.fixture(scope="session")
def onnx_beside() -> Callable[..., Path]:
    """Return a function that writes an ONNX model into a folder; its tensors are in `weights.bin` next to the model."""

    def write(folder: Path, sizes: tuple[int, ...] = (4000, 8000)) -> Path:
        model: Any = schema.bundled().message_class("onnx.ModelProto")()
        model.graph.name, offset = "g", 0
        for number, size in enumerate(sizes):
            tensor = model.graph.initializer.add(name=f"w{number}", data_type=1, dims=[size // 4], data_location=1)
            for key, value in {"location": "weights.bin", "offset": offset, "length": size}.items():
                tensor.external_data.add(key=key, value=str(value))
            offset += size
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        (folder / "weights.bin").write_bytes(os.urandom(offset))
        return folder / "model.onnx"

    return write


@pytest.fixture(scope="session")
def saved_model() -> Callable[[Path], Path]:
    """Return a function that writes a SavedModel with two variables into a folder."""

    def write(folder: Path) -> Path:
        makers.write_saved_model(folder)
        return folder

    return write
