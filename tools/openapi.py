"""Print the OpenAPI document in its committed form: `python -m tools.openapi > openapi/openapi.json`."""

from __future__ import annotations

import json

from protoslice.build import release
from protoslice.server.app import create_app
from protoslice.server.settings import Settings


def document_text() -> str:
    """Return the document with the release's version instead of the build's, so that the document rarely changes."""
    document = create_app(Settings(storage="memory://")).openapi()
    document["info"]["version"] = release()
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(document_text(), end="")
