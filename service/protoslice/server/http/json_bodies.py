"""JSON of requests and responses, decoded and encoded in one place."""

from __future__ import annotations

from json import JSONDecodeError
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from protoslice.json_text import encode_json, parse_json
from protoslice.server.problems import INVALID, HttpProblem


class StrictRequest(Request):
    """Request whose JSON is read strictly, by the framework too."""

    async def json(self) -> Any:
        """Parse the body; `HttpProblem` 400 for texts that are not valid Unicode and for nesting too deep."""
        if not hasattr(self, "_json"):
            try:
                self._json = parse_json(await self.body())
            except JSONDecodeError:
                raise  # the framework names the place
            except ValueError as error:
                raise HttpProblem(INVALID, f"Invalid JSON in the body: {error}") from None
        return self._json


class JsonAnswer(Response):
    """JSON response that can encode any text of a record."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode `content`; bytes are JSON already."""
        return content if isinstance(content, bytes) else encode_json(content)
