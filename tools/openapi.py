"""Print the OpenAPI document in its committed form: `python -m tools.openapi > openapi/openapi.json`."""

from __future__ import annotations

import json

from protoslice.build import release
from protoslice.server.app import create_app
from protoslice.server.settings import Settings


def document_text() -> str:
    """Return the document with the version of the release instead of the build, so that it rarely changes."""
    document = create_app(Settings(storage="memory://")).openapi()
    document["info"]["version"] = release()
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(document_text(), end="")
