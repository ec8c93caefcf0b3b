"""Plans: chunks and their metadata give the proto again, also if rules decide which parts become chunks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.chunked import TYPES, M
from tests.support.protos import ROOT, Case, canonical, cases, descriptor_of, merge_chunks
from tests.support.rules import random_rules, ruled_cases, splits
from tests.support.stores import field as delimited

import protoslice
from protoslice import _core
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, ProtosliceError, Unsupported
from protoslice.library.opening import open_proto
from protoslice.schema import bundled, from_descriptor_set

METADATA = bundled().message_class("tensorflow.proto_splitter.ChunkMetadata")
_MESSAGE, _BYTES = 1, 2


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """Return a random policy, most often a tiny one."""
    least = draw(st.sampled_from([1, 2, 8, 30, 64, 200, 1000, 1 << 20]))
    return {"min_chunk": least, "max_chunk": least * draw(st.sampled_from([1, 2, 10, 1000]))}


LIMITS = _core.Limits(chunks=1 << 20)
"""Limits that allow a chunk for every byte of a case, which is more than the engine makes by default."""


def opened(case: Case, floor: int | None = None) -> protoslice.Proto:
    return protoslice.open(
        case.data, ROOT, types=from_descriptor_set(case.schema), floor=floor or case.floor, limits=LIMITS
    )


def metadata_of(split: protoslice.Split) -> Any:
    return METADATA.FromString(split.metadata)


@given(cases(), policies())
def test_chunks_merge_back(case: Case, policy: dict[str, Any]) -> None:
    split = opened(case).split(**policy)
    chunks = [chunk.rope.read() for chunk in split]
    merged = merge_chunks(chunks, metadata_of(split).message, case.root())
    assert canonical(merged) == canonical(case.message())


@given(cases(), policies())
def test_the_chunked_file_opens_as_the_same_proto(case: Case, policy: dict[str, Any]) -> None:
    split = opened(case).split(**policy)
    file = split.cpb().read()
    with protoslice.open(file, ROOT, types=from_descriptor_set(case.schema), floor=case.floor) as again:
        assert again.form == "chunked"
        assert canonical(case.root.FromString(again.rope.read())) == canonical(case.message())


@given(cases(), policies())
def test_metadata_says_what_the_chunks_are(case: Case, policy: dict[str, Any]) -> None:
    split = opened(case).split(**policy)
    metadata = metadata_of(split)
    assert [info.size for info in metadata.chunks] == [chunk.size for chunk in split]
    assert [info.type for info in metadata.chunks] == [_BYTES if chunk.kind == "bytes" else _MESSAGE for chunk in split]
    assert (metadata.version.splitter_version, metadata.version.join_version) == (1, 0)
    used = [chunked.chunk_index for chunked in _all(metadata.message) if chunked.HasField("chunk_index")]
    assert sorted(used) == list(range(len(split))), "each chunk is used once"
    for number, chunk in enumerate(split):
        assert chunk.index == number
        assert (chunk.type is None) == (chunk.kind == "bytes")


def _all(chunked: Any) -> Iterator[Any]:
    yield chunked
    for field in chunked.chunked_fields:
        yield from _all(field.message)


@given(cases(), policies())
def test_a_chunk_that_is_text_or_bytes_is_what_stands_at_its_path(case: Case, policy: dict[str, Any]) -> None:
    proto = opened(case)
    for chunk in proto.split(**policy):
        if chunk.kind == "bytes":
            assert chunk.rope.read() == proto.merge(chunk.path).read()
            assert chunk.size >= policy["min_chunk"]


@given(cases(), policies(), st.sampled_from([1, 7, 300, 1 << 20]))
def test_neither_the_run_nor_the_floor_of_the_index_changes_the_plan(
    case: Case, policy: dict[str, Any], floor: int
) -> None:
    first, second = (opened(case, each).split(**policy) for each in (case.floor, floor))
    assert first.metadata == second.metadata
    assert [(chunk.kind, chunk.path, chunk.rope.read()) for chunk in first] == [
        (chunk.kind, chunk.path, chunk.rope.read()) for chunk in second
    ]
    assert first.cpb().read() == second.cpb().read()


@given(cases(), policies())
def test_large_singular_bytes_are_chunks(case: Case, policy: dict[str, Any]) -> None:
    """Each large singular bytes or string field of a root without oddities is a separate chunk."""
    message = case.message()
    data = canonical(message)
    proto = protoslice.open(data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)
    out = {chunk.path for chunk in proto.split(**policy) if chunk.kind == "bytes"}
    for field, value in message.ListFields():
        text = field.type in (field.TYPE_BYTES, field.TYPE_STRING)
        if text and not field.is_repeated and proto.merge(field.name).size >= policy["min_chunk"]:
            assert field.name in out, value


def test_a_proto_has_chunks_by_its_size() -> None:
    """Every chunk costs a kilobyte, even a small one, so a short proto must not cause hundreds of thousands."""
    data = delimited(7, b"\x2a\x02\x42\x00" * 20_000)
    with protoslice.open(data, "onnx.ModelProto") as proto:
        with pytest.raises(LimitExceeded, match="more than 16403: raise min_chunk, max_chunk"):
            proto.split(min_chunk=1, max_chunk=1)
        assert len(proto.split(min_chunk=8, max_chunk=8)) == 10_001, "the rest, and the runs"
    with protoslice.open(data, "onnx.ModelProto", limits=_core.Limits(chunks=50_000)) as proto:
        assert len(proto.split(min_chunk=1, max_chunk=1)) > 20_000


# Plans by rules: rules decide which parts become chunks, and the chunks still merge to the whole.

RULES_METADATA: Any = bundled().message_class("tensorflow.proto_splitter.ChunkMetadata")


def merged(case: Case, seed: int, sets: int) -> int:
    """Return how many sets of rules split the message; chunks are merged like in TensorFlow's Merger."""
    split_up, whole = 0, canonical(case.message())
    for rules, split in splits(case, seed, sets):
        chunks, metadata = [chunk.rope.read() for chunk in split], RULES_METADATA.FromString(split.metadata)
        assert canonical(merge_chunks(chunks, metadata.message, case.root())) == whole, rules
        split_up += len(chunks) > 1
    return split_up


def check(case: Case, seed: int) -> int:
    """Return the number of chunks under random rules; they survive a file and do not depend on the index."""
    random = Random(seed)
    rules = random_rules(random, descriptor_of(case.root))
    sizes: Any = {"min_chunk": random.choice([1, 8, 64, 1 << 20]), "max_chunk": 1 << 21}
    with protoslice.open(case.data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor) as proto:
        split = proto.split(**sizes, rules=rules)
        chunks, metadata = [chunk.rope.read() for chunk in split], RULES_METADATA.FromString(split.metadata)
        assert canonical(merge_chunks(chunks, metadata.message, case.root())) == canonical(case.message()), rules
        file = split.cpb().read()
        with protoslice.open(file, ROOT, types=from_descriptor_set(case.schema)) as again:
            assert canonical(case.root.FromString(again.rope.read())) == canonical(case.message()), rules
            assert [chunk.rope.read() for chunk in again.chunks] == chunks
    with protoslice.open(case.data, ROOT, types=from_descriptor_set(case.schema), floor=1 << 20) as other:
        assert other.split(**sizes, rules=rules).metadata == split.metadata, "the floor of the index decides nothing"
    return len(chunks)


@given(cases(), st.integers(0, 1 << 32))
def test_chunks_by_any_rules_merge_to_the_whole(case: Case, seed: int) -> None:
    check(case, seed)


def test_a_thousand_sets_of_rules_merge_to_the_whole() -> None:
    split = sum(merged(case, seed, 20) for seed, case in enumerate(ruled_cases()))
    assert split > 600, f"{split} of 1000 sets of rules split their message"


def _plan(message: Any, *rules: str, **sizes: Any) -> list[tuple[str, bytes]]:
    """Return the paths and bytes of all chunks except the first."""
    with open_proto(message.SerializeToString(), "t.M", types=TYPES, floor=1) as proto:
        split = proto.split(**sizes, rules=rules)
        assert M.FromString(proto.rope.read()) == message
        chunks, metadata = [chunk.rope.read() for chunk in split], RULES_METADATA.FromString(split.metadata)
        assert merge_chunks(chunks, metadata.message, M()) == message
        return [(chunk.path, chunk.rope.read()) for chunk in split][1:]


SUBS = M(i32=1, subs=[M(i32=number, bytes=b"x" * 20) for number in range(5)], sub=M(str="s", sub=M(bytes=b"deep")))


@pytest.mark.parametrize(
    ("rules", "paths"),
    [
        ([], []),
        (["sub.sub.bytes: always"], ["sub.sub.bytes"]),
        (["sub: always"], ["sub"]),
        (["sub: always", "sub.sub: always"], ["sub", "sub.sub"]),
        (["sub: always", "sub: never"], []),
        (["sub: never", "sub: always"], ["sub"]),
        (["sub: always", "sub.sub: always", "sub: whole"], ["sub"]),
        (["sub.sub.bytes: 4"], ["sub.sub.bytes"]),
        (["sub.sub.bytes: 5"], []),
        (["subs: every 2"], ["subs[0:2]", "subs[2:4]", "subs[4:5]"]),
        (["subs: always"], ["subs[0:5]"]),
        (["subs[1:3]: always"], ["subs[1]", "subs[2]"]),
        (["subs[4].bytes: always"], ["subs[4].bytes"]),
        (["subs.bytes: always"], [f"subs[{number}].bytes" for number in range(5)]),
        (["subs: every 3", "subs[1].bytes: always"], ["subs[0:3]", "subs[3:5]", "subs[1].bytes"]),
        (["16.16.1: always"], ["sub.sub.bytes"]),
    ],
)
def test_rules_decide_which_parts_are_chunks(rules: list[str], paths: list[str]) -> None:
    assert [path for path, _ in _plan(SUBS, *rules)] == paths


def test_rules_go_before_the_sizes() -> None:
    by_size = [path for path, _ in _plan(SUBS, min_chunk=20)]
    assert by_size
    assert [path for path, _ in _plan(SUBS, "subs: never", "subs[*]: never", "sub: never", min_chunk=60)] == []
    assert [path for path, _ in _plan(M(bytes=b"x" * 50), "bytes: never", min_chunk=20)] == []
    kept = [path for path, _ in _plan(SUBS, "sub: whole", "subs: whole", min_chunk=1)]
    assert "sub" in kept
    assert not any(path.startswith(("sub.", "subs[0].")) for path in kept)


def test_entries_of_maps_are_told_by_their_keys() -> None:
    message = M()
    for name in ("a", "b", 'c"'):
        message.by_s[name].bytes = b"value " + name.encode()
    message.by_i32[-7].str = "seven"
    message.by_i32[0].str = "none"
    rules = ('by_s["c\\""].bytes: always', 'by_s["b"]: always', "by_i32[0].str: always", "by_i32[-7]: always")
    found = dict(_plan(message, *rules))
    assert found.keys() == {'by_s["c\\""].bytes', 'by_s["b"]', "by_i32[0].str", "by_i32[-7]"}
    assert found['by_s["c\\""].bytes'] == b'value c"'


@pytest.mark.parametrize(
    ("rule", "error", "said"),
    [
        ("sub", InvalidInput, r"a colon.*character 1"),
        ("sub: sometimes", InvalidInput, r"always, never.*character 5"),
        ("sub..str: always", InvalidInput, r"character 5"),
        ("sub.nothing: always", NotFound, r"t\.M has no field nothing, at character 11"),
        ("i32.sub: always", NotFound, r"cannot be looked up.*at character 7"),
        ("sub[0]: always", Unsupported, r"sub is not repeated.*at character 6"),
        ("subs[-1]: always", Unsupported, r"the positions of elements in .* must be 0 or more"),
        ('subs[str="x"]: always', Unsupported, r"condition"),
        ('by_i32["x"]: always', Unsupported, r"integer"),
        ("i32: always", Unsupported, r"only messages, text and bytes"),
        ("strs[*]: always", Unsupported, "leave out the brackets"),
        ("ints: every 3", Unsupported, r"numbers"),
        ("sub: every 3", Unsupported, r"repeated field"),
        ("str: whole", Unsupported, r"the action whole is only for messages"),
    ],
)
def test_a_rule_that_cannot_apply_is_refused_with_its_place(rule: str, error: type[ProtosliceError], said: str) -> None:
    with open_proto(b"", "t.M", types=TYPES) as proto, pytest.raises(error, match=said) as refused:
        proto.split(rules=["sub: always", rule])
    assert rule.partition(":")[0] in str(refused.value.path)


def test_rules_are_bounded() -> None:
    with open_proto(b"", "t.M", types=TYPES) as proto:
        assert len(proto.split(rules=["sub: always"] * 64)) == 1
        for rules in (["sub: always"] * 65, [f'by_s["{"k" * 4000}"]: always'] * 5):
            with pytest.raises(LimitExceeded, match=r"rules with .* bytes in total are too many"):
                proto.split(rules=rules)


@pytest.mark.parametrize("count", [1, 8, 64])
def test_the_work_of_rules_follows_the_messages_and_not_the_rules(count: int) -> None:
    """The rules look into every small message, for a field that no message has."""
    data = delimited(20, delimited(16, b"\x18\x01")) * 50_000
    rules = ["subs.sub.bytes: always"] * count
    for steps, enough in ((150_000, True), (99_999, False)):
        with open_proto(data, "t.M", types=TYPES, limits=_core.Limits(steps=steps)) as proto:
            if enough:
                assert len(proto.split(rules=rules)) == 1
            else:
                with pytest.raises(LimitExceeded, match="too many small messages"):
                    proto.split(rules=rules)
