"""Headers of a request."""

from __future__ import annotations

import pytest

from protoslice.server.http.headers import media_type_of


@pytest.mark.parametrize(
    "sent", ["application/x-tar", "Application/X-TAR", " application/x-tar ; a=b;c", "application/x-tar;"]
)
def test_a_media_type_is_told_without_its_case_and_parameters(sent: str) -> None:
    assert media_type_of({b"content-type": sent}) == "application/x-tar"


def test_a_default_counts_only_where_the_request_names_no_type() -> None:
    assert media_type_of({}) == ""
    assert media_type_of({}, "text/plain") == "text/plain"
    assert media_type_of({b"content-type": ""}, "text/plain") == ""
