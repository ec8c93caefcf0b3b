"""The file of issuers: mistakes are told by their place, and claims are matched as rules say."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from protoslice.errors import InvalidInput
from protoslice.server.auth.oidc.issuers import parse_issuers, read_issuers
from protoslice.server.auth.permissions import Grant, Scope

GOOD = """
[[issuer]]
url = "https://ci.example"
audience = "https://models.example"
[[issuer.allow]]
claims = { sub = "robot" }
space = "team"
scopes = ["read"]
"""

PAGE = GOOD.replace(
    "[[issuer.allow]]", 'login_client = "https://models.example"\nlogin_secret_file = "FILE"\n[[issuer.allow]]'
)

MISTAKES = {
    "": "issuer: add at least one table",
    "issuer = 1": "issuer: add at least one table",
    "other = 1\n" + GOOD: "unknown key 'other'",
    GOOD + GOOD: "listed twice",
    GOOD.replace('url = "https://ci.example"', ""): r"issuer\[0\].url: use a string",
    GOOD.replace("https://ci", "ftp://ci"): r"issuer\[0\].url: invalid issuer",
    GOOD.replace("https://ci", "https://a@ci"): "invalid issuer",
    GOOD.replace('audience = "https://models.example"', ""): r"issuer\[0\].audience: use a string or a list",
    GOOD.replace('"https://models.example"', "[]"): r"issuer\[0\].audience",
    GOOD.replace("[[issuer.allow]]", 'algorithms = ["HS256"]\n[[issuer.allow]]'): "'HS256' is not one of RS256",
    GOOD.replace("[[issuer.allow]]", 'algorithms = ["none"]\n[[issuer.allow]]'): "'none' is not one of",
    GOOD.replace("[[issuer.allow]]", 'networks = ["all"]\n[[issuer.allow]]'): "networks",
    GOOD.replace('{ sub = "robot" }', "{}"): r"allow\[0\].claims: name a claim",
    GOOD.replace('"robot"', "[]"): r"claims.sub: use a string",
    GOOD.replace('"robot"', "1"): r"claims.sub: use a string",
    GOOD.replace('"team"', '"../x"'): "neither a space",
    GOOD.replace('["read"]', '["reed"]'): "'reed' is not one of read, write",
    GOOD.replace('["read"]', "[]"): r"allow\[0\].scopes",
    GOOD + 'tag = "x"': r"allow\[0\]: unknown key 'tag'",
    GOOD.replace("[[issuer.allow]]", 'login_secret_file = "x"\n[[issuer.allow]]'): "needs a `login_client`",
    GOOD.replace("[[issuer.allow]]", 'device_client = "x"\n[[issuer.allow]]'): "needs a `login_client`",
    GOOD.replace("[[issuer.allow]]", 'login_client = "x"\n[[issuer.allow]]'): "login_client: add 'x'",
    PAGE.replace("FILE", "/none"): "login_secret_file: /none: No such file",
    PAGE.replace("FILE", "/dev/null"): "login_secret_file: /dev/null is empty",
    PAGE.replace("FILE", "/none").replace("[[issuer.a", 'device_client = "x"\n[[issuer.a'): "device_client: add 'x'",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_by_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "issuers.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=MISTAKES[text]) as output:
        read_issuers(path)
    assert output.value.message.startswith(f"{path}: ")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_issuers(tmp_path / "none")
    (tmp_path / "odd").write_bytes(b"\xff")
    with pytest.raises(InvalidInput, match="not valid TOML"):
        read_issuers(tmp_path / "odd")
    (tmp_path / "long").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InvalidInput, match="at most"):
        read_issuers(tmp_path / "long")


MATCHES: list[tuple[str, dict[str, Any], bool]] = [
    ('{ sub = "robot" }', {"sub": "robot"}, True),
    ('{ sub = "robot" }', {"sub": "robots"}, False),
    ('{ sub = "robot" }', {}, False),
    ('{ sub = "robot" }', {"sub": {"robot": 1}}, False),
    ('{ sub = "robot" }', {"sub": None}, False),
    ('{ sub = "*" }', {"sub": 1.5}, False),
    ('{ repository = "acme/*" }', {"repository": "acme/models"}, True),
    ('{ repository = "acme/*" }', {"repository": "evil/acme/models"}, False),
    ('{ groups = ["a", "b*"] }', {"groups": ["x", "bc"]}, True),
    ('{ groups = ["a", "b*"] }', {"groups": ["x", ["a"]]}, False),
    ('{ groups = "a", sub = "s" }', {"groups": ["a"], "sub": "t"}, False),
    ('{ ok = "true", email = "*@acme.example" }', {"ok": True, "email": "a@acme.example"}, True),
    ('{ ok = "true" }', {"ok": 1}, False),
    ('{ project = "42" }', {"project": 42}, True),
    ('{ "/kubernetes.io/namespace" = "ci" }', {"kubernetes.io": {"namespace": "ci"}}, True),
    ('{ "/kubernetes.io/namespace" = "ci" }', {"kubernetes.io": ["ci"]}, False),
    ('{ "/a~1b/c~0d" = "x" }', {"a/b": {"c~d": "x"}}, True),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "claims", "matches"), MATCHES)
def test_claims_match_as_rules_say(rule: str, claims: dict[str, Any], matches: bool) -> None:
    (issuer,) = parse_issuers(tomllib.loads(GOOD.replace('{ sub = "robot" }', rule)))
    expected = (Grant("team", frozenset({Scope.READ})),) if matches else ()
    assert tuple(rule.grant for rule in issuer.matching(claims)) == expected


def test_a_secret_is_shown_to_nobody_and_the_command_line_has_none(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    (issuer,) = parse_issuers(tomllib.loads(PAGE.replace("FILE", str(tmp_path / "secret"))))
    assert (issuer.login_secret, issuer.device_client) == ("s3cret", None)
    assert "s3cret" not in repr(issuer) + "".join(issuer.describe())
    assert "command line users sign in with tokens only" in "\n".join(issuer.describe())
