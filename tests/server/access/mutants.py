"""Mutants of the gate: each is planted in a copy of the sources, and tests have to kill it.

Run by hand, as it takes minutes: `.venv/bin/python -m tests.server.access.mutants`. The exit code is 1 with survivors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]
ACCESS: Final = "service/protoslice/server/access"
TESTS: Final = "tests/server/access"
ORDER: Final = (
    "test_decision.py", "test_tokens.py", "test_places.py", "test_signatures.py", "test_records.py",
    "oidc/test_verification.py", "oidc/test_statements.py", "test_sessions.py", "test_closed.py", "test_gate.py",
    "test_own_uploads.py", "test_write_only.py", "test_quotas.py", "../../stores/quotas/test_room.py",
)  # fmt: skip
"""Tests, the quick ones first."""
_SECONDS: Final = 300


class Mutant(NamedTuple):
    """A change of one place in a module."""

    module: str
    old: str
    new: str


_UPLOADS: Final = "../../stores/uploads"
_QUOTAS: Final = "../../stores/quotas"
MUTANTS: Final = (
    Mutant("decision.py", "or Scope.ADMIN in self.scopes", "or Scope.READ in self.scopes"),
    Mutant("decision.py", "if not self.gives(need.scope):", "if False:"),
    Mutant("decision.py", "if not self.tags or need.scope is Scope.READ:", "if True:"),
    Mutant("decision.py", "return need.scope not in {Scope.DELETE, Scope.ADMIN}", "return True"),
    Mutant("decision.py", "return all(any(pattern", "return any(any(pattern"),
    Mutant("decision.py", "grant.space in (space, EVERY_SPACE)", "True"),
    Mutant("decision.py", "grant.space in (space, EVERY_SPACE)", "grant.space == space"),
    Mutant("decision.py", "if not any(grant.scopes for grant in here):", "if not principal.grants:"),
    Mutant(
        "gate.py",
        "if not self.closed or rule.scope is None:",
        "if not self.closed or rule.scope in {None, Scope.READ}:",
    ),
    Mutant("sessions.py", 'or not is_own_page(scope["method"], fields)', ""),
    Mutant("sessions.py", "values[0] if len(values) == 1 else None", "values[0] if values else None"),
    Mutant("signatures.py", "int(min(wanted, time.time() + self.seconds - _SKEW_SECONDS))", "int(wanted)"),
    Mutant("oidc/sign_in.py", "if not hmac.compare_digest(begun.state", "if False and hmac.compare_digest(begun.state"),
    Mutant("oidc/sign_in.py", "if begun.end <= time.time():", "if False:"),
    Mutant("oidc/sign_in.py", 'if said.get("iss", self.issuer.url) != self.issuer.url:', "if False:"),
    Mutant("oidc/sign_in.py", "if not isinstance(nonce, str) or not", "if False and not"),
    Mutant("oidc/sign_in.py", "if self.client not in (", "if False and self.client not in ("),
    Mutant("oidc/sign_in.py", 'if claims.get("azp", self.client) != self.client:', "if False:"),
    Mutant("oidc/verification.py", "or statement.end <= time.time()", ""),
    Mutant("oidc/verification.py", "or await known.keys.find(statement.key_id) is None", ""),
    Mutant("oidc/verification.py", "if id in statement.rules", ""),
    Mutant("gate.py", "EVERY_SPACE if rule.everywhere else space", "space"),
    Mutant("gate.py", "admission.require_sight()", "pass"),
    Mutant("gate.py", "tags_of(rule.tags, scope, fields, parameters)", "()"),
    Mutant("rules.py", "if self.reads:", "if False:"),
    Mutant("gate.py", "rule.tags is TagPlace.BODY and any(", "False and any("),
    Mutant("gate.py", "caller is not None and caller.may_read(space)", "caller is not None"),
    Mutant("credentials.py", "if kept is None or kept[0] != authorization:", "if kept is None:"),
    Mutant("credentials.py", "if kept[1].until > time.monotonic() else None", ""),
    Mutant(
        "credentials.py",
        "if signature in self._proven:\n            return signature.is_valid",
        "if self._proven:\n            return True",
    ),
    Mutant("credentials.py", "found.until > time.monotonic() and found.signed(signature)", "found.signed(signature)"),
    Mutant("credentials.py", "if not any(signature.proves(key) for key in self._keys)", "if not self._keys"),
    Mutant("credentials.py", "if found is None or found.until <= time.monotonic():", "if found is None:"),
    Mutant("credentials.py", "record.expires.timestamp() - time.time()", "KNOWN_SECONDS"),
    Mutant("credentials.py", "verified.expires - time.time()", "KNOWN_BY_JWT_SECONDS"),
    Mutant("credentials.py", "if len(authorization) > _LONGEST:", "if False:"),
    Mutant("signatures.py", "and self.is_valid", ""),
    Mutant("signatures.py", "return 0 < self.expires - time.time() <= self.purpose.seconds", "return True"),
    Mutant(
        "signatures.py",
        "return 0 < self.expires - time.time() <= self.purpose.seconds",
        "return time.time() < self.expires",
    ),
    Mutant("signatures.py", 'f"protoslice signed {purpose}".encode()', 'b""'),
    Mutant("records.py", "signing_key(service_key, ", 'signing_key(b"", '),
    Mutant("signatures.py", 'b"GET " + target[:-_PROOF]', 'b"GET " + target.partition(b"?")[0]'),
    Mutant("signatures.py", '"GET" if scope["method"] == "HEAD" else scope["method"]', '"GET"'),
    Mutant("records.py", "if record is not None and token.proves(record.hash) else None", ""),
    Mutant("records.py", "return None if record is None or record.expired else record", "return record"),
    Mutant("records.py", "id = :id AND space = :space", "id = :id AND :space <> ''"),
    Mutant("tokens.py", "return hmac.compare_digest(self.hash.encode(), kept.encode())", "return bool(kept)"),
    Mutant("tokens.py", "if _checksum(body) != check:", "if False:"),
    Mutant("gate.py", "if rule.signed:", "if True:"),
    Mutant("places.py", "(/spaces/([a-z0-9][a-z0-9-]{0,62}))(/.*)", "(/spaces/([^/]{1,63}))(/.*)"),
    Mutant(
        "tags.py", 'return (*query, *pairs(fields.get(b"upload-metadata", "")).get("tag", "").split())', "return query"
    ),
    Mutant("tags.py", 'return (unquote(parameters["name"]),)', 'return (parameters["name"],)'),
    Mutant("records.py", "WHERE space = :space AND id > :after", "WHERE :space <> '' AND id > :after"),
    Mutant("credentials.py", "asked + min(KNOWN_SECONDS, left)", "asked + KNOWN_SECONDS"),
    Mutant("signatures.py", 'scope.get("raw_path") or scope["path"].encode()', 'scope["path"].encode()'),
    Mutant(f"{_UPLOADS}/records.py", "self._client not in {None, found[0].client}", "False"),
    Mutant("../services.py", "None if self.admission is None else pseudonym(self.admission.key)", "None"),
    Mutant("../http/failures.py", "if problem.refuses:", "if False:"),
    Mutant(f"{_QUOTAS}/model.py", "type(value) is not int or not 0", "not 0"),
    Mutant("oidc/verification.py", "if algorithm not in issuer.algorithms:", "if False:"),
)


def survives(mutant: Mutant, folder: Path) -> bool:
    """True when no test fails with the mutant; `ValueError` when its place is not found."""
    path = folder / ACCESS / mutant.module
    whole = path.read_text()
    if mutant.old not in whole:
        raise ValueError(f"{mutant.module} has no {mutant.old!r} any more: mend the list")
    path.write_text(whole.replace(mutant.old, mutant.new, 1))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
    command += [f"{TESTS}/{name}" for name in ORDER]
    environment = os.environ | {"PYTHONPATH": f"{folder}/service{os.pathsep}{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=_SECONDS)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        path.write_text(whole)


def main() -> None:
    """Plant every mutant; tell which survive."""
    alive = []
    with tempfile.TemporaryDirectory(prefix="protoslice-mutants-") as name:
        folder = Path(name)
        for part in ("service", "tests", "pyproject.toml", "docs", "openapi", "docker", "bench"):
            place = ROOT / part
            copy = shutil.copytree if place.is_dir() else shutil.copy
            copy(place, folder / part)
        for mutant in MUTANTS:
            lives = survives(mutant, folder)
            alive += [mutant] if lives else []
            print("SURVIVES" if lives else "dies    ", mutant.module, repr(mutant.new), flush=True)
    print(f"{len(MUTANTS) - len(alive)} of {len(MUTANTS)} die")
    raise SystemExit(bool(alive))


if __name__ == "__main__":
    main()
