"""Reports on a model are bounded and come in slices; failures of storage are no faults of a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support import stores
from tests.support.bundles import Layout, Variable, bundle
from tests.support.tensors import content, in_slices, tensor

import protoslice
from protoslice import open_model, schema
from protoslice.concurrency import finish
from protoslice.errors import CorruptModel, IntegrityError, ProtosliceError, StorageUnavailable
from protoslice.facts import DtypeTotal, ModelReport, RoleTotal
from protoslice.formats import report as reports
from protoslice.formats.onnx import Onnx
from protoslice.formats.report import report_job
from protoslice.sources.ropes import Rope
from protoslice.tensors.model import Deferred, Model, Stored, Tensor
from protoslice.tensors.model import RootProto as Root
from protoslice.tensors.references import references
from protoslice.tensors.safetensors_file import safetensors

MESSAGE: Any = schema.bundled().message_class("onnx.ModelProto")


def onnx_at(folder: Path, tensors: list[dict[str, Any]]) -> Path:
    """Return an ONNX model; a tensor with a `location` is in that file."""
    model = MESSAGE()
    model.graph.name = "g"
    for each in tensors:
        tensor = model.graph.initializer.add(name=each["name"], data_type=1, dims=[each.get("elements", 1)])
        if (location := each.get("location")) is None:
            tensor.raw_data = bytes(4 * each.get("elements", 1))
        else:
            tensor.data_location = 1
            tensor.external_data.add(key="location", value=location)
            tensor.external_data.add(key="length", value=str(4 * each.get("elements", 1)))
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def report(path: Path, **options: Any) -> ModelReport:
    with open_model(path) as model:
        return finish(report_job(model.model, **options))


def test_a_sound_model(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(400))
    found = report(onnx_at(tmp_path, [{"name": "a"}, {"name": "b", "elements": 100, "location": "w.bin"}]))
    assert found == ModelReport(
        type="onnx.ModelProto",
        tensors=2,
        files=("w.bin",),
        dtypes=(DtypeTotal("F32", 2, 101, 404),),
        totals=(RoleTotal("weight", 1, 100, 400), RoleTotal("constant", 1, 1, 4)),
    )
    assert found.problem is None


def test_files_that_are_missing_are_named_once(tmp_path: Path) -> None:
    path = onnx_at(tmp_path, [{"name": f"t{number}", "location": f"w{number % 2}.bin"} for number in range(6)])
    found = report(path)
    assert (found.missing, found.tensors, found.complete) == (("w0.bin", "w1.bin"), 6, True)
    assert "'w0.bin', 'w1.bin'" in str(found.problem)


def test_names_that_several_tensors_bear(tmp_path: Path) -> None:
    found = report(onnx_at(tmp_path, [{"name": "a"}, {"name": "b"}, {"name": "a"}]))
    assert (found.duplicates, found.problem) == (("a",), None), "a sound model may have such"


def test_names_beyond_those_compared_make_a_report_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MOST_LISTED", 2)
    found = report(onnx_at(tmp_path, [{"name": name} for name in "abab"]), most=None)
    assert (found.duplicates, found.complete) == (("a", "b"), True)
    found = report(onnx_at(tmp_path, [{"name": name} for name in "abca"]), most=None)
    assert (found.duplicates, found.complete) == (("a",), False)


def test_a_tensor_that_does_not_fit_its_file_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(10))
    (damage,) = report(onnx_at(tmp_path, [{"name": "cut", "elements": 100, "location": "w.bin"}])).damaged
    assert damage.part == "cut"
    assert "has 10" in damage.error


def a_bundle(folder: Path, shards: int = 1) -> Path:
    variables = [Variable(f"v{number}", 1, (100,), os.urandom(400), number % shards) for number in range(4)]
    for name, data in bundle("v", variables, Layout(shards=shards)).items():
        (folder / name).write_bytes(data)
    return folder / "v.index"


def test_checksums_are_compared_when_told_to(tmp_path: Path) -> None:
    index = a_bundle(tmp_path)
    (shard,) = tmp_path.glob("*.data-*")
    data = bytearray(shard.read_bytes())
    data[500] ^= 1
    shard.write_bytes(data)
    assert report(index).damaged == ()
    (damage,) = report(index, compare=True).damaged
    assert damage.part == "v1"


@pytest.mark.parametrize("strings", [False, True])
def test_no_more_is_compared_than_files_have(tmp_path: Path, strings: bool) -> None:
    """Of overlapping tensors, the second is refused without reading it, and the third is not examined."""
    whole: Any = (
        {"shape": (2,), "strings": [b"x" * 40, b"y" * 4000]} if strings else {"shape": (1000,), "data": bytes(4000)}
    )
    variables = [Variable(name, 7 if strings else 1, **whole) for name in "abc"]
    for name, data in bundle("v", variables, Layout(overlap=True)).items():
        (tmp_path / name).write_bytes(data)
    (damage,) = report(tmp_path / "v.index", compare=True).damaged
    assert (damage.part, damage.error.split(":")[0]) == ("b", "Tensors overlap")
    assert report(tmp_path / "v.index").damaged == ()


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    index = a_bundle(tmp_path, shards=2)
    (tmp_path / "v.data-00001-of-00002").unlink()
    found = report(index)
    assert (found.missing, found.files) == (("v.data-00001-of-00002",), ("v.data-00000-of-00002",))


def test_an_index_that_is_damaged(tmp_path: Path) -> None:
    index = a_bundle(tmp_path)
    data = bytearray(index.read_bytes())
    data[5] ^= 1
    index.write_bytes(data)
    found = report(index)
    assert (found.tensors, [damage.part for damage in found.damaged]) == (None, ["v.index"])


def test_a_file_of_no_format(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("root:x:0:0\n")
    found = report(path)
    assert (found.tensors, found.problem, found.complete) == (None, None, True)


def test_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    path = onnx_at(tmp_path, [{"name": f"t{number}", "location": f"w{number}.bin"} for number in range(50)])
    found = report(path)
    assert (len(found.missing), found.complete) == (reports.MOST_NAMED, False)
    assert len(str(found.problem)) < 2000


@pytest.mark.parametrize("compare", [False, True])
def test_so_many_tensors_are_looked_at(tmp_path: Path, compare: bool) -> None:
    path = onnx_at(tmp_path, [*({"name": f"t{number}"} for number in range(600)), {"name": "u", "location": "far.bin"}])
    cut = report(path, most=600, compare=compare)
    assert (cut.tensors, cut.missing, cut.complete) == (601, (), False)
    assert report(path, most=None, compare=compare).missing == ("far.bin",)


def test_the_work_comes_in_slices(tmp_path: Path) -> None:
    path = onnx_at(tmp_path, [{"name": f"t{number}"} for number in range(1000)])
    with open_model(path) as model:
        slices, found = in_slices(report_job(model.model))
    assert (slices, found.tensors) == (3, 1000)


def test_further_checks_are_told_of(tmp_path: Path) -> None:
    def fails() -> None:
        raise CorruptModel("a record fails its hash")

    path = onnx_at(tmp_path, [])
    (damage,) = report(path, checks=[("model.onnx", fails)]).damaged
    assert (damage.part, damage.error) == ("model.onnx", "a record fails its hash")

    def is_away() -> None:
        raise StorageUnavailable("no damage of the model")

    with pytest.raises(StorageUnavailable):
        report(path, checks=[("model.onnx", is_away)])


# Temporary failures of storage are never taken for faults of a model, its tensors or its type.

KIND = "onnx.ModelProto"


@dataclass
class Flaky:
    """A source whose read number `fail_at` fails, and no other read."""

    data: bytes
    fail_at: int
    error: type[ProtosliceError] = StorageUnavailable
    reads: int = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int, /) -> bytes:
        self.reads += 1
        if self.reads == self.fail_at:
            raise self.error("not now")
        return self.data[offset : offset + length]


def looked_up(source: Flaky) -> Tensor:
    """A tensor whose place is known only after something is read."""

    def look() -> Stored:
        source.read(0, 1)
        return Stored(Rope.of(source))

    return tensor(Deferred(look), "U8", (source.size,))


@pytest.mark.parametrize("error", [StorageUnavailable, IntegrityError])
def test_a_tensor_that_cannot_be_read_now_is_not_left_out(error: type[ProtosliceError]) -> None:
    source = Flaky(b"abc", 1, error)
    with pytest.raises(error):
        references([looked_up(source)], {}, file_url=str, tensor_url=str)
    source = Flaky(b"abc", 1, error)
    with pytest.raises(error):
        safetensors([looked_up(source)])
    assert content(safetensors([looked_up(source)])).endswith(b"abc")


def every_read(data: bytes, work: Callable[[Flaky], None]) -> None:
    """Do `work` once for each of its reads, which fails; `work` must fail for that reason, or not at all."""
    whole = Flaky(data, 0)
    work(whole)
    assert whole.reads > 2
    for fail_at in range(1, whole.reads + 1):
        with suppress(StorageUnavailable):
            work(Flaky(data, fail_at))


def test_a_type_that_cannot_be_told_now_is_not_unknown() -> None:
    with protoslice.open(stores.onnx(20_000, 30_000, 500)) as proto:
        file = proto.split(min_chunk=10, max_chunk=2000).cpb().read()

    def work(source: Flaky) -> None:
        with protoslice.open(source) as proto:
            assert (proto.type, proto.why) == (KIND, f"has the fields of {KIND} after merging")

    every_read(file, work)


def test_a_listing_that_cannot_be_read_now_has_no_faults() -> None:
    data = stores.onnx(30_000, 30_000, 30_000)
    index = protoslice.open(data, KIND).index_bytes

    def work(source: Flaky) -> None:
        with protoslice.open(source, KIND, index=index) as proto:
            model = Model("m.onnx", proto.type, {"m.onnx": source}, Root(proto.document, proto.sources))
            found = Onnx().tensors(model)
            assert [found[number].shape for number in range(3)] == [(30_000,)] * 3

    every_read(data, work)
