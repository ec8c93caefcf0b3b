"""A service as a separate process, and a store in it, for clients of other authors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import onnx

SIZES = (3_000_000, 2_000_001, 70_000)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that the service holds."""

    url: str
    data: bytes

    @property
    def file(self) -> str:
        """URL of the model's file."""
        return f"{self.url}/files/model.onnx"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service over a directory."""
    storage = tmp_path_factory.mktemp("storage")
    settings = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process("--storage", storage.as_uri(), settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def stored(service: ServiceProcess) -> StoredModel:
    """A model in three initializers, of which two are chunks."""
    data = onnx(*SIZES)
    answer = httpx.put(f"{service.url}/v1/stores?filename=model.onnx", content=data, timeout=60)
    assert answer.status_code == 201, answer.text
    return StoredModel(f"{service.url}/v1/stores/{answer.json()['id']}", data)
