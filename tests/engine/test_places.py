"""Every place that a path can name holds what the protobuf runtime says stands there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.protos import ROOT, Case, canonical, cases, places

import protoslice
from protoslice.errors import NotFound
from protoslice.schema import from_descriptor_set

_LONGEST_PATH = 4096


def opened(case: Case) -> protoslice.Proto:
    return protoslice.open(case.data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)


@given(cases())
def test_the_whole_is_the_input_byte_for_byte(case: Case) -> None:
    proto = opened(case)
    assert (proto.size, proto.type, proto.rope.kind, proto.rope.type) == (len(case.data), ROOT, "message", ROOT)
    assert proto.rope.read() == case.data


@given(cases())
def test_every_place_holds_what_the_runtime_parses(case: Case) -> None:
    proto = opened(case)
    for place in places(case.message(), case.rng):
        if len(place.path) <= _LONGEST_PATH:
            got = proto.merge(place.path).read()
            assert place.agrees(got), f"{place.path}: {got[:100]!r}, not {place.value!r}"


@given(cases(), st.data())
def test_any_slice_of_any_rope_is_the_slice_of_its_bytes(case: Case, data: st.DataObject) -> None:
    proto = opened(case)
    paths = [place.path for place in places(case.message(), case.rng) if len(place.path) <= _LONGEST_PATH]
    rope = proto.merge(data.draw(st.sampled_from(["", *paths])))
    whole = rope.read()
    bound = st.integers(-len(whole) - 2, len(whole) + 2) | st.none()
    a, b = data.draw(bound), data.draw(bound)
    part = rope[a:b]
    assert part.read() == whole[a:b]
    c, d = data.draw(bound), data.draw(bound)
    assert part[c:d].read() == whole[a:b][c:d]
    assert b"".join(bytes(piece) for piece in part.pieces(7)) == whole[a:b] if len(part) < 10_000 else True


@given(cases())
def test_what_is_not_there_is_not_found(case: Case) -> None:
    proto, message = opened(case), case.message()
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        wrong = [f"{field.name}[0]", f'{field.name}["a"]']
        if field.has_presence and not message.HasField(field.name):
            wrong.append(field.name)
        for path in wrong:
            with pytest.raises(NotFound) as caught:
                proto.merge(path)
            assert caught.value.path == path
            assert field.name in caught.value.message


@given(cases())
def test_one_past_the_end_is_not_found_and_says_how_many_there_are(case: Case) -> None:
    proto, message = opened(case), case.message()
    for field in message.DESCRIPTOR.fields:
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        if not field.is_repeated or entry:
            continue
        count = len(getattr(message, field.name))
        path = f"{field.name}[{count}]"
        with pytest.raises(NotFound, match=f"it has {count} elements") as caught:
            proto.merge(path)
        assert caught.value.path == path
        with pytest.raises(NotFound):
            proto.merge(f"{field.name}[-1]")


@given(cases())
def test_a_name_that_is_unknown_is_not_found_and_the_known_ones_are_named(case: Case) -> None:
    with pytest.raises(NotFound, match="no field") as caught:
        opened(case).merge("no_such_field")
    assert caught.value.path == "no_such_field"
    assert case.root.DESCRIPTOR.fields[0].name in caught.value.message or len(case.root.DESCRIPTOR.fields) > 24


@given(cases())
def test_the_index_is_made_once_and_reopened(case: Case) -> None:
    types = from_descriptor_set(case.schema)
    proto = opened(case)
    again = protoslice.open(case.data, ROOT, types=types, index=proto.index_bytes)
    for place in places(case.message(), case.rng):
        if len(place.path) <= _LONGEST_PATH:
            assert again.merge(place.path).read() == proto.merge(place.path).read()


@given(cases(odd=False))
def test_a_plain_message_reads_back_from_its_own_paths(case: Case) -> None:
    """Also without oddities: what the runtime itself would write."""
    message = case.message()
    data = canonical(message)
    proto = protoslice.open(data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)
    for place in places(message, case.rng):
        if len(place.path) <= _LONGEST_PATH:
            assert place.agrees(proto.merge(place.path).read()), place.path
