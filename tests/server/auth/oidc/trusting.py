"""Services that trust the issuer of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.issuer import AUDIENCE, FakeIssuer

STORES = "/spaces/own/v1/stores"
RULES = ("claims = { sub = 'robot' }\nspace = 'own'\nscopes = ['read', 'write']\ntags = ['ci-*']",)


def trust_file(
    folder: Path,
    *issuers: FakeIssuer,
    rules: Sequence[str] = RULES,
    more: str = "",
    audience: Sequence[str] = (AUDIENCE,),
) -> Path:
    """Write a file that trusts `issuers` by `rules`."""
    path = folder / "issuers.toml"
    allowed = "".join(f"[[issuer.allow]]\n{rule}\n" for rule in rules)
    path.write_text(
        "".join(
            f"[[issuer]]\nurl = '{each.url}'\naudience = {list(audience)}\nnetworks = ['127.0.0.1']\n{more}\n{allowed}"
            for each in issuers
        )
    )
    return path
