"""Prints the OpenAPI document, as it is committed.

`python -m protoslice.server.api.documentation.openapi_file > openapi/openapi.json`
"""

from __future__ import annotations

import json

from protoslice.server.app import create_app
from protoslice.server.settings import Settings


def document_text() -> str:
    """The document as it is committed."""
    return json.dumps(create_app(Settings(storage="memory://")).openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(document_text(), end="")
