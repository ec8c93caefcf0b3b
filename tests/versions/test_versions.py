"""What is made of a model stays the same, byte for byte, as long as the version of what makes it stays the same."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import protoslice
from protoslice import _core

MODELS: Final = Path(__file__).parents[1] / "formats" / "golden"
CHUNKED: Final = Path(__file__).parents[1] / "merging" / "golden"
KEPT: Final = Path(__file__).parent / "golden.json"

Makes = Iterator[tuple[str, bytes]]
PLANNED: Final = (
    "caffe_new/net.caffemodel",
    "coreml_nn_float32/model.mlmodel",
    "hlo_jax_constants/module.hlo.pb",
    "onnx_subgraphs/model.onnx",
    "paddle_dtypes_combined/model.pdmodel",
    "tf_graph_const/frozen.pb",
    "tf_sm_functions/saved_model.pb",
    "tf_sm_pbtxt/saved_model.pbtxt",
)


def planned() -> Makes:
    """The plans of protos, texts and chunked protos, with the bytes of every chunk."""
    paths = [*(MODELS / name for name in PLANNED), *sorted(CHUNKED.rglob("*.cpb"))]
    for path in paths:
        with protoslice.open(path) as proto:
            for least in (16, 300):
                split = proto.split(min_chunk=least, max_chunk=4 * least)
                for chunk in split:
                    yield path.name, repr((least, chunk.kind, chunk.type, chunk.path)).encode() + chunk.rope.read()
                yield path.name, split.metadata


MAKERS: Final[dict[str, tuple[int, Callable[[], Makes], str]]] = {
    "plans": (_core.Plan.VERSION, planned, "VERSION in core/wire/src/plan.rs"),
}


def digest(makes: Makes) -> str:
    """One digest of all that is made."""
    sha = hashlib.sha256()
    for name, data in makes:
        sha.update(f"{name} {len(data)}\n".encode())
        sha.update(data)
    return sha.hexdigest()


@pytest.mark.parametrize("what", MAKERS)
def test_what_is_made_changes_with_its_version_alone(what: str) -> None:
    version, make, where = MAKERS[what]
    kept = json.loads(KEPT.read_text())[what]
    made = {"version": version, "sha256": digest(make())}
    if made == kept:
        return
    assert version != kept["version"], (
        f"the {what} are others than version {version} makes: ids, entity tags and kept facts name them "
        f"by that version, so raise {where}; if they should not have changed, mend them instead"
    )
    pytest.fail(f"version {version} of the {what} is new: run `python {Path(__file__).name} write` beside the test")


if __name__ == "__main__" and sys.argv[1:] == ["write"]:
    found = {what: {"version": version, "sha256": digest(make())} for what, (version, make, _) in MAKERS.items()}
    KEPT.write_text(json.dumps(found, indent=1) + "\n")
