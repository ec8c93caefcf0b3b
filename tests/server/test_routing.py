"""Routers: a path is compared with the routes of those that may take it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from protoslice.server.routing import Route


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/api/2.0/mlflow-artifacts/artifacts/run/a.txt", 6),
        ("/v2/team/few/manifests/v1", 20),
        ("/v1/tags/few", 12),
    ],
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
