"""A store whose files no disk can hold together is refused on every way in, with both names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.bodies.ways import OF_SEVERAL, Site, Way
from tests.support.serve import assert_problem

from protoslice.catalog.requests import FilePaths
from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded

DATA = b"\x0a\x05paths"
CLASHES = [("a", "a/b"), ("a/b", "a"), ("x/y/z.pb", "x"), ("x", "x/y/z.pb")]


@pytest.mark.parametrize("way", OF_SEVERAL, ids=lambda way: way.__name__)
def test_a_file_that_is_a_folder_for_another_is_refused(site: Site, way: Way) -> None:
    for paths in CLASHES:
        refused = way(site, dict.fromkeys(paths, DATA))
        problem = assert_problem(
            refused.status_code, refused.headers, refused.content, expected=400, slug="invalid-input"
        )
        assert all(repr(path) in problem["detail"] for path in paths)
    assert way(site, dict.fromkeys(("a", "a-b", "a.b/c", "ab", "b/a"), DATA)).status_code in {200, 201}


@pytest.mark.parametrize("path", ["/v1/stores/register", "/v1/stores/assemble"])
def test_more_files_than_a_store_holds_are_refused_before_any_is_looked_at(site: Site, path: str) -> None:
    named = {f"f{number}": "x" for number in range(MAX_FILES + 1)}
    refused = site.client.post(path, json={"files": named} if "register" in path else {"uploads": named})
    assert_problem(refused.status_code, refused.headers, refused.content, expected=413, slug="limit-exceeded")


def test_a_store_holds_only_so_many_files() -> None:
    found = FilePaths()
    for number in range(MAX_FILES):
        found.add(f"f{number}")
    with pytest.raises(LimitExceeded, match=str(MAX_FILES)):
        found.add("one more")


@given(st.lists(st.text("a/-", min_size=1, max_size=5), max_size=6))
def test_paths_go_together_as_on_a_disk(paths: list[str]) -> None:
    plain = [path for path in paths if "" not in path.split("/")]
    together = all(
        one != other and not other.startswith(one + "/") for one in set(plain) for other in set(plain) - {one}
    )
    found = FilePaths()
    try:
        for path in plain:
            found.add(path)
        accepted = True
    except InvalidInput:
        accepted = False
    assert accepted == (together and len(set(plain)) == len(plain))
