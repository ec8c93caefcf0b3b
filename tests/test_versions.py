"""The id of a store names everything that decides which bytes its views give, and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from protoslice.versions import Policy, store_id

FILES = [("b.bin", 3, "b" * 64), ("a/é.onnx", 1 << 40, "a" * 64)]
POLICY = Policy(
    root="a/é.onnx", type="onnx.ModelProto", min_chunk=1 << 20, max_chunk=1 << 30, schema="5" * 64, planner=7
)


def test_the_id_is_as_documented() -> None:
    """Clients in other languages compute it: the text that is hashed never changes for this scheme."""
    text = (
        '["protoslice store 2",'
        rf'[["a/\u00e9.onnx",1099511627776,"{"a" * 64}"],["b.bin",3,"{"b" * 64}"]],'
        rf'["a/\u00e9.onnx","onnx.ModelProto",1048576,1073741824],"{"5" * 64}",7]'
    )
    assert store_id(FILES, POLICY) == hashlib.sha256(text.encode()).hexdigest()


def test_a_store_without_a_proto_has_an_id() -> None:
    policy = Policy(root=None, type=None, min_chunk=1, max_chunk=2, schema=None, planner=None)
    text = '["protoslice store 2",[["x",0,["s3://b/x","\\"e\\""]]],[null,null,1,2],null,null]'
    assert store_id([("x", 0, ["s3://b/x", '"e"'])], policy) == hashlib.sha256(text.encode()).hexdigest()


def test_the_order_of_the_files_is_no_matter() -> None:
    assert store_id(FILES, POLICY) == store_id(reversed(FILES), POLICY)


@pytest.mark.parametrize(
    "other",
    [
        replace(POLICY, root="b.bin"),
        replace(POLICY, type="onnx.GraphProto"),
        replace(POLICY, type=None),
        replace(POLICY, min_chunk=1),
        replace(POLICY, max_chunk=1 << 31),
        replace(POLICY, schema="6" * 64),
        replace(POLICY, schema=None),
        replace(POLICY, planner=8),
    ],
)
def test_whatever_decides_about_bytes_changes_the_id(other: Policy) -> None:
    assert store_id(FILES, POLICY) != store_id(FILES, other)


@pytest.mark.parametrize("place", range(3))
def test_whatever_is_in_the_files_changes_the_id(place: int) -> None:
    changed = list(FILES[0])
    changed[place] = {0: "c.bin", 1: 4, 2: "c" * 64}[place]
    path, size, content = changed
    assert store_id(FILES, POLICY) != store_id([(str(path), int(str(size)), str(content)), FILES[1]], POLICY)
