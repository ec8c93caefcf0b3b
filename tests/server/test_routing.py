"""What a request costs before its handler: a path is compared with few routes, and no dependency runs in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fastapi.dependencies.utils
import httpx
import pytest

from protoslice.server.routing import Route


@pytest.mark.parametrize(
    ("path", "most"),
    [("/api/2.0/mlflow-artifacts/artifacts/run/a.txt", 6), ("/v2/team/few/manifests/v1", 20), ("/v1/tags/few", 12)],
)
def test_a_path_is_compared_with_routes_that_begin_alike(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, most: int
) -> None:
    compared: list[str] = []
    matches = Route.matches

    def noted(self: Route, scope: Any) -> Any:
        compared.append(self.path)
        return matches(self, scope)

    monkeypatch.setattr(Route, "matches", noted)
    assert client.get(path).status_code == 404
    assert 0 < len(compared) <= 2 * most, compared  # the framework matches twice


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/run/a.txt"),
        ("GET", "/api/2.0/mlflow-artifacts/artifacts?path=run"),
        ("POST", "/v2/team/threads/blobs/uploads/"),
        ("GET", "/v2/team/threads/tags/list"),
        ("GET", "/v2/team/threads/manifests/v1"),
        ("GET", "/v1/stores"),
        ("GET", f"/v1/stores/{'0' * 64}/records"),
    ],
)
def test_a_request_goes_to_no_thread_before_its_route(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    in_threads: list[str] = []

    async def noted(work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        in_threads.append(work.__name__)
        return work(*given, **named)

    monkeypatch.setattr(fastapi.dependencies.utils, "run_in_threadpool", noted)
    assert client.request(method, path, content=b"x" if method == "PUT" else None).status_code < 500
    assert in_threads == []
