"""Object keys: what is a name, and how any text becomes one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.errors import InvalidInput
from protoslice.storage import ObjectKey, quote, unquote

EMPTY_OR_DOTTED = ["", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a/./b", "../a", "a/.."]
UNPRINTABLE = ["a\0b", "a\nb", "a\x7fb", "a\\b", "\ud800", "a/\u2028b", "a\u202eb"]
TOO_LONG = ["s" * 256, "é" * 128, "/".join("a" * 33), "/".join(["s" * 200] * 4)]
RESERVED = [".protoslice", ".protoslice/tmp/x"]


@pytest.mark.parametrize("text", EMPTY_OR_DOTTED + UNPRINTABLE + TOO_LONG + RESERVED)
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(InvalidInput):
        ObjectKey(text)


@pytest.mark.parametrize("text", ["a", "a b", ".hidden", "...", "a/.protoslice", "é/日", "s" * 255, "/".join("a" * 32)])
def test_what_is_a_key(text: str) -> None:
    assert str(ObjectKey(text)) == text
    assert "/".join(ObjectKey(text).segments) == text


def test_keys_are_joined_and_checked_again() -> None:
    assert ObjectKey("a") / "b" / ObjectKey("c/d") == ObjectKey("a/b/c/d")
    with pytest.raises(InvalidInput):
        ObjectKey("a") / ".."
    with pytest.raises(InvalidInput):
        ObjectKey("a") / "/etc"


def test_below_is_by_segment() -> None:
    assert ObjectKey("a/b").is_below(ObjectKey("a"))
    assert ObjectKey("a/b").is_below(None)
    assert not ObjectKey("ab/c").is_below(ObjectKey("a"))
    assert not ObjectKey("a").is_below(ObjectKey("a"))


@given(st.lists(st.text(min_size=1, max_size=5), min_size=2, max_size=6))
def test_keys_are_ordered_as_their_bytes(texts: list[str]) -> None:
    keys = [ObjectKey(quote(text)) for text in texts]
    assert sorted(keys) == sorted(keys, key=lambda key: key.text.encode())


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_text_has_a_quoted_segment(text: str) -> None:
    segment = quote(text)
    assert segment.isascii()
    assert not segment.startswith(".")
    assert unquote(segment) == text
    assert ObjectKey(segment).segments == (segment,)


def test_every_tag_name_has_a_segment() -> None:
    for sign in "._:@~+-":
        assert ObjectKey(quote("a" + sign * 127)).text == "a" + sign * 127


@pytest.mark.parametrize("segment", ["=", "=4", "=41", "a b", "=C3", "é", "=2e", ".a", "a/b", "=2Ea=2E"])
def test_what_quote_never_makes_is_refused(segment: str) -> None:
    with pytest.raises(InvalidInput):
        unquote(segment)
