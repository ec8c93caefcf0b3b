"""Conditional requests, clause by clause of RFC 9110 section 13."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.server.http.conditions import (
    EntityTag,
    Preconditions,
    Validators,
    Verdict,
    evaluate,
    parse_http_date,
    range_applies,
)

MOMENT = datetime(1994, 11, 6, 8, 49, 37, 250_000, tzinfo=UTC)
AT = "Sun, 06 Nov 1994 08:49:37 GMT"
BEFORE = "Sun, 06 Nov 1994 08:49:36 GMT"
AFTER = "Sun, 06 Nov 1994 08:49:38 GMT"
CURRENT = Validators(EntityTag("now"), MOMENT)
WEAK = Validators(EntityTag("now", weak=True), MOMENT)
GO, SAME, FAILED = Verdict.PROCEED, Verdict.NOT_MODIFIED, Verdict.FAILED
OPAQUE = ["a", "b", "c", "", "a,b", "*", "a\\", "\u00e9\u00ff", "other"]


def _is_listed(header: str, tag: EntityTag) -> bool:
    """True when If-None-Match finds `tag` in the list, by the weak comparison."""
    return evaluate(Preconditions(if_none_match=header), Validators(tag), reads=True) is SAME


def _is_named(header: str, tag: EntityTag) -> bool:
    """True when If-Match finds `tag` in the list, by the strong comparison."""
    return evaluate(Preconditions(if_match=header), Validators(tag), reads=False) is GO


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
        "",
        " ",
        ",",
        "a",
        "'a'",
        '"a',
        'a"',
        '"a" "b"',
        '"a""b"',
        'w/"a"',
        'W/ "a"',
        "W/a",
        '*, "a"',
        '"a", *',
        '"a b"',
        '"a\tb"',
        '"a";',
        '"\u0100"',
        '"\x7f"',
    ],
)
def test_what_is_no_list_of_tags(header: str) -> None:
    never = Validators(EntityTag("never"))
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
    ("text", "moment"),
    [
        (AT, MOMENT.replace(microsecond=0)),
        ("Sunday, 06-Nov-94 08:49:37 GMT", MOMENT.replace(microsecond=0)),
        ("Sun Nov  6 08:49:37 1994", MOMENT.replace(microsecond=0)),
        ("Tue, 31 Dec 2069 23:59:60 GMT", datetime(2069, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("Tuesday, 31-Dec-69 23:59:59 GMT", datetime(2069, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_the_three_forms_of_dates(text: str, moment: datetime) -> None:
    assert parse_http_date(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "0",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "sun, 06 nov 1994 08:49:37 gmt",
        "1994-11-06T08:49:37Z",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, \u0660\u0666 Nov 1994 08:49:37 GMT",
    ],
)
def test_what_is_no_date(text: str) -> None:
    assert parse_http_date(text) is None


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
        (Preconditions(if_unmodified_since=AT), GO, GO),
        (Preconditions(if_unmodified_since=AFTER), GO, GO),
        (Preconditions(if_unmodified_since=BEFORE), FAILED, FAILED),
        (Preconditions(if_unmodified_since="never"), GO, GO),
        (Preconditions(if_none_match='"old"'), GO, GO),
        (Preconditions(if_none_match='"now"'), SAME, FAILED),
        (Preconditions(if_none_match='"old", W/"now"'), SAME, FAILED),
        (Preconditions(if_none_match="*"), SAME, FAILED),
        (Preconditions(if_none_match="now"), GO, FAILED),
        (Preconditions(if_modified_since=AT), SAME, GO),
        (Preconditions(if_modified_since=AFTER), SAME, GO),
        (Preconditions(if_modified_since=BEFORE), GO, GO),
        (Preconditions(if_modified_since="never"), GO, GO),
        # Order: If-Match rules out If-Unmodified-Since, If-None-Match rules out If-Modified-Since; the first pair comes
        # first. (Preconditions(if_match='"now"', if_unmodified_since=BEFORE), GO, GO),
        (Preconditions(if_match='"old"', if_unmodified_since=AFTER), FAILED, FAILED),
        (Preconditions(if_none_match='"old"', if_modified_since=AFTER), GO, GO),
        (Preconditions(if_none_match='"now"', if_modified_since=BEFORE), SAME, FAILED),
        (Preconditions(if_match='"old"', if_none_match='"now"'), FAILED, FAILED),
        (Preconditions(if_match='"now"', if_none_match='"now"'), SAME, FAILED),
        (Preconditions(if_unmodified_since=BEFORE, if_none_match='"now"'), FAILED, FAILED),
        (Preconditions(if_match='"now"', if_modified_since=AT), SAME, GO),
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
        (Preconditions(if_unmodified_since=BEFORE), GO),
    ],
)
def test_preconditions_where_there_is_nothing_yet(headers: Preconditions, verdict: Verdict) -> None:
    assert evaluate(headers, None, reads=False) == verdict


def test_without_a_date_dates_are_ignored() -> None:
    current = Validators(EntityTag("now"))
    for headers in (Preconditions(if_unmodified_since=BEFORE), Preconditions(if_modified_since=AFTER)):
        assert evaluate(headers, current, reads=True) == GO
    assert not range_applies(AT, current)


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
        (AT, True),
        (BEFORE, False),
        (AFTER, False),
        ("Sun Nov  6 08:49:37 1994", True),
    ],
)
def test_if_range(header: str | None, applies: bool) -> None:
    assert range_applies(header, CURRENT) == applies


def test_a_time_elsewhere_is_the_same_time() -> None:
    there = Validators(EntityTag("now"), MOMENT.astimezone(timezone(timedelta(hours=-5))))
    assert range_applies(AT, there)


@given(st.text(max_size=80))
def test_any_text_gets_a_verdict(text: str) -> None:
    headers = Preconditions(if_match=text, if_unmodified_since=text, if_none_match=text, if_modified_since=text)
    assert evaluate(headers, CURRENT, reads=True) in Verdict
    assert range_applies(text, CURRENT) == (text.strip(" \t") == '"now"')


def test_long_lists_take_no_long_time() -> None:
    assert evaluate(Preconditions(if_none_match='"x",' * 50_000 + '"now"'), CURRENT, reads=True) == SAME
    assert evaluate(Preconditions(if_none_match=", " * 100_000), CURRENT, reads=True) == GO
    assert evaluate(Preconditions(if_none_match='"' * 100_000), CURRENT, reads=True) == GO
    assert evaluate(Preconditions(if_none_match='"x"' + " " * 100_000 + "x"), CURRENT, reads=True) == GO
