"""Conditional requests, clause by clause of RFC 9110 section 13."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.server.http.conditions import EntityTag, Preconditions, Verdict, evaluate, range_applies

AT = "Sun, 06 Nov 1994 08:49:37 GMT"
CURRENT = EntityTag("now")
WEAK = EntityTag("now", weak=True)
GO, SAME, FAILED = Verdict.PROCEED, Verdict.NOT_MODIFIED, Verdict.FAILED
OPAQUE = ["a", "b", "c", "", "a,b", "*", "a\\", "\u00e9\u00ff", "other"]


def _is_listed(header: str, tag: EntityTag) -> bool:
    """Return True when If-None-Match finds `tag` in the list, by the weak comparison."""
    return evaluate(Preconditions(if_none_match=header), tag, reads=True) is SAME


def _is_named(header: str, tag: EntityTag) -> bool:
    """Return True when If-Match finds `tag` in the list, by the strong comparison."""
    return evaluate(Preconditions(if_match=header), tag, reads=False) is GO


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        ('"a"', [EntityTag("a")]),
        ('W/"a"', [EntityTag("a", weak=True)]),
        ('""', [EntityTag("")]),
        ('"a", "b",W/"c"', [EntityTag("a"), EntityTag("b"), EntityTag("c", weak=True)]),
        (' , "a" ,,\t"b", ', [EntityTag("a"), EntityTag("b")]),
        ('"a,b", "c"', [EntityTag("a,b"), EntityTag("c")]),
        ('"*"', [EntityTag("*")]),
        ('"a\\"', [EntityTag("a\\")]),
        ('"\u00e9\u00ff"', [EntityTag("\u00e9\u00ff")]),
    ],
)
def test_lists_of_tags(header: str, tags: list[EntityTag]) -> None:
    assert {opaque for opaque in OPAQUE if _is_listed(header, EntityTag(opaque))} == {tag.opaque for tag in tags}
    assert {opaque for opaque in OPAQUE if _is_named(header, EntityTag(opaque))} == {
        tag.opaque for tag in tags if not tag.weak
    }


@pytest.mark.parametrize(
    ("version", "opaque"),
    [
        ("5f-a9.0_~", "5f-a9.0_~"),
        ('"abc"', "%22abc%22"),
        ("%22abc%22", "%2522abc%2522"),
        ('W/"a b", c', "W/%22a%20b%22%2C%20c"),
        ("\x00\r\n\x7f", "%00%0D%0A%7F"),
        ("\u00e9\u2028", "%C3%A9%E2%80%A8"),
        ("\ud800", "%ED%A0%80"),
        ("", ""),
    ],
)
def test_the_version_of_a_storage_becomes_a_tag(version: str, opaque: str) -> None:
    assert EntityTag.of(version) == EntityTag(opaque)


@given(st.text(), st.text())
def test_a_version_and_no_other_is_found_again_in_a_header(version: str, other: str) -> None:
    tag = EntityTag.of(version)
    assert str(tag).isascii()
    assert _is_named(f'"x", {tag}', tag)
    assert (EntityTag.of(other) == tag) == (other == version)


def test_a_star_alone_is_any() -> None:
    assert _is_listed(" * ", EntityTag("any"))
    assert _is_named(" * ", EntityTag("any", weak=True))


@pytest.mark.parametrize(
    "header",
    [
        "", " ", ",", "a", "'a'", '"a', 'a"', '"a" "b"', '"a""b"', 'w/"a"', 'W/ "a"', "W/a", '*, "a"', '"a", *',
        '"a b"', '"a\tb"', '"a";', '"\u0100"', '"\x7f"',
    ],
)  # fmt: skip
def test_what_is_no_list_of_tags(header: str) -> None:
    never = EntityTag("never")
    assert evaluate(Preconditions(if_none_match='"other"'), never, reads=False) is GO
    assert evaluate(Preconditions(if_none_match=header), never, reads=False) is FAILED
    assert evaluate(Preconditions(if_match=header), never, reads=False) is FAILED


@pytest.mark.parametrize("tag", [EntityTag("a,b"), EntityTag("", weak=True)])
def test_a_tag_is_written_as_it_is_read(tag: EntityTag) -> None:
    assert _is_listed(str(tag), tag)
    assert _is_named(str(tag), EntityTag(tag.opaque)) is not tag.weak


# RFC 9110, section 8.8.3.2, table 3.
@pytest.mark.parametrize(
    ("one", "two", "strong", "weak"),
    [
        (EntityTag("1", weak=True), EntityTag("1", weak=True), False, True),
        (EntityTag("1", weak=True), EntityTag("2", weak=True), False, False),
        (EntityTag("1", weak=True), EntityTag("1"), False, True),
        (EntityTag("1"), EntityTag("1"), True, True),
    ],
)
def test_comparing_tags(one: EntityTag, two: EntityTag, strong: bool, weak: bool) -> None:
    for first, second in ((one, two), (two, one)):
        assert (first.matches_strongly(second), _is_named(str(first), second)) == (strong, strong)
        assert _is_listed(str(first), second) is weak


@pytest.mark.parametrize(
    ("headers", "read", "change"),
    [
        (Preconditions(), GO, GO),
        (Preconditions(if_match='"now"'), GO, GO),
        (Preconditions(if_match='"old", "now"'), GO, GO),
        (Preconditions(if_match="*"), GO, GO),
        (Preconditions(if_match='"old"'), FAILED, FAILED),
        (Preconditions(if_match='W/"now"'), FAILED, FAILED),
        (Preconditions(if_match="now"), FAILED, FAILED),
        (Preconditions(if_none_match='"old"'), GO, GO),
        (Preconditions(if_none_match='"now"'), SAME, FAILED),
        (Preconditions(if_none_match='"old", W/"now"'), SAME, FAILED),
        (Preconditions(if_none_match="*"), SAME, FAILED),
        (Preconditions(if_none_match="now"), GO, FAILED),
        (Preconditions(if_match='"old"', if_none_match='"now"'), FAILED, FAILED),
        (Preconditions(if_match='"now"', if_none_match='"now"'), SAME, FAILED),
    ],
)
def test_preconditions(headers: Preconditions, read: Verdict, change: Verdict) -> None:
    assert evaluate(headers, CURRENT, reads=True) == read
    assert evaluate(headers, CURRENT, reads=False) == change


@pytest.mark.parametrize(
    ("headers", "verdict"),
    [
        (Preconditions(), GO),
        (Preconditions(if_match="*"), FAILED),
        (Preconditions(if_match='"now"'), FAILED),
        (Preconditions(if_none_match="*"), GO),
        (Preconditions(if_none_match='"now"'), GO),
        (Preconditions(if_none_match="now"), FAILED),
    ],
)
def test_preconditions_where_there_is_nothing_yet(headers: Preconditions, verdict: Verdict) -> None:
    assert evaluate(headers, None, reads=False) == verdict


def test_a_weak_tag_never_matches_strongly() -> None:
    assert evaluate(Preconditions(if_match='W/"now", "now"'), WEAK, reads=False) == FAILED
    assert evaluate(Preconditions(if_none_match='"now"'), WEAK, reads=True) == SAME
    assert not range_applies('"now"', WEAK)


@pytest.mark.parametrize(
    ("header", "applies"),
    [
        (None, True),
        ('"now"', True),
        (' "now" ', True),
        ('"old"', False),
        ('W/"now"', False),
        ("now", False),
        ("*", False),
        ("", False),
        ('"now", "old"', False),
        (AT, False),
        ("Sun Nov  6 08:49:37 1994", False),
    ],
)
def test_if_range(header: str | None, applies: bool) -> None:
    assert range_applies(header, CURRENT) == applies


@given(st.text(max_size=80))
def test_any_text_gets_a_verdict(text: str) -> None:
    headers = Preconditions(if_match=text, if_none_match=text)
    assert evaluate(headers, CURRENT, reads=True) in Verdict
    assert range_applies(text, CURRENT) == (text.strip(" \t") == '"now"')


def test_long_lists_take_no_long_time() -> None:
    assert evaluate(Preconditions(if_none_match='"x",' * 50_000 + '"now"'), CURRENT, reads=True) == SAME
    assert evaluate(Preconditions(if_none_match=", " * 100_000), CURRENT, reads=True) == GO
    assert evaluate(Preconditions(if_none_match='"' * 100_000), CURRENT, reads=True) == GO
    assert evaluate(Preconditions(if_none_match='"x"' + " " * 100_000 + "x"), CURRENT, reads=True) == GO
