"""No acknowledged write is lost when processes are killed; `make kills` and `make soak` kill more of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kills.__main__ import play
from tests.kills.processes import Place, Processes, SqliteRows
from tests.support.postgres import TestServer


@pytest.mark.long
@pytest.mark.parametrize("profile", ["sqlite", "postgresql"])
def test_kills_lose_nothing_acknowledged(profile: str, postgres: TestServer) -> None:
    found = play(profile, postgres, seed=1, kills=6)
    assert found["lost"] == []
    assert sum(found["killed"].values()) >= 6
    assert min(found["acknowledged"][kind] for kind in ("uploads", "joined", "commits", "pushes", "puts")) > 0
    assert found["left"]["stores"] > 0


def test_requests_that_nginx_sent_twice_are_read_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        '127.0.0.1 "DELETE /v1/tags/a" 404 0 0.1 127.0.0.1:1, 127.0.0.1:2 id\n'
        '127.0.0.1 "DELETE /v1/tags/b" 404 0 0.1 127.0.0.1:1 id\n'
    )
    processes = Processes(Place("memory://", ""), SqliteRows(""), [], [], [], "http://127.0.0.1:1", log)
    assert processes.sent_twice() == {"DELETE /v1/tags/a"}
