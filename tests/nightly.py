"""Run what `make test` leaves out, or what a release needs, and print one table: `make nightly`, `make release`.

    python -m tests.nightly nightly|release [--only JOB]… [--allow JOB]…

A job is a goal of the Makefile. One that lacks something is not run, which is a failure unless `--allow` names it. The
table, with commit, date and hardware, is kept in `.make/nightly/`, with the output of each job.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tools.package_build import DESCRIBE, SYSTEMS

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = Path(".make") / "nightly"


@dataclass(frozen=True, slots=True)
class Job:
    """A goal of the Makefile, and the requirements that it does not install."""

    goal: str
    programs: str = ""
    file: str = ""
    hint: str = ""
    """The remedy if the file is missing."""

    def lacks(self) -> str | None:
        """Return why the job cannot be run here; "" if it can."""
        path = f"{os.environ.get('PATH', '')}:/usr/sbin"
        if missing := [name for name in self.programs.split() if shutil.which(name, path=path) is None]:
            return f"{', '.join(missing)}: not installed"
        if self.file and not Path(self.file).exists():
            return f"no {self.file}: {self.hint}"
        return None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a job: `passed`, `failed` or `not run`."""

    job: str
    ended: str
    seconds: int = 0
    reason: str = ""


BUILT: Final = (
    Job("bills", file="dist", hint="run `make wheels`"),
    Job("image", file="dist", hint="run `make wheels`"),
)
CHECKS: Final = (
    Job("long"),
    Job("manifests", "go systemd-analyze"),
    Job("nginx", "npm"),
    Job("compose", "go unshare"),
    Job("clients", "go gcc g++ npm cargo", ".make/oci-conformance", "build it as tools/programs.sh says"),
    Job("browser", "go"),
    Job("kills", "go"),
    Job("soak"),
)
NIGHTLY: Final[Sequence[Job]] = (Job("wheels", "cargo"), *BUILT, *CHECKS)
RELEASE: Final[Sequence[Job]] = (
    Job("test"),
    Job("reproducible", "cargo"),
    *NIGHTLY,
    Job("archives", "go", "dist", "run `make wheels`"),
)


def machines() -> tuple[list[str], list[Result]]:
    """Return the machines that Rust can compile for here, and why the others get no wheel."""
    found, missing = list[str](), list[Result]()
    for machine in SYSTEMS:
        libraries = output("rustc", "--print", "target-libdir", "--target", f"{machine}-unknown-linux-gnu")
        if machine == platform.machine() or (libraries and Path(libraries).is_dir()):
            found.append(machine)
        else:
            reason = "no standard library of Rust for it here; the hosted workflow builds it"
            missing.append(Result(f"wheel-{machine}", "not run", reason=reason))
    return found, missing


def address() -> list[Result]:
    """Return a result if the package does not name the project's address."""
    if "[project.urls]" in Path("pyproject.toml").read_text():
        return []
    return [
        Result("address", "not run", reason="pyproject.toml has no [project.urls]: add those of the project's home")
    ]


def output(*command: str) -> str:
    """Return a program's output; "" if the program fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def run(job: Job, *words: str) -> Result:
    """Run a job, and save its output."""
    if reason := job.lacks():
        return Result(job.goal, "not run", reason=reason)
    log = KEPT / f"{job.goal}.log"
    began = time.monotonic()
    with log.open("w") as file:
        code = subprocess.run(["make", job.goal, *words], stdout=file, stderr=subprocess.STDOUT).returncode
    ended = "failed" if code else "passed"
    return Result(job.goal, ended, round(time.monotonic() - began), reason=f"see {log}" if code else "")


def hardware() -> str:
    """Return the processor, its cores, and the memory of this machine."""
    facts = {line.split(":")[0].strip(): line for line in Path("/proc/cpuinfo").read_text().splitlines() if line}
    model = facts.get("model name", platform.machine()).split(":")[-1].strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{model}, {os.cpu_count()} cores, {memory / 2**30:.0f} GiB"


def table(results: Sequence[Result], allowed: set[str]) -> str:
    """Return the results as a table."""
    lines = ["| job | ended | seconds | |", "|---|---|---|---|"]
    for result in results:
        note = f"{result.reason} (allowed)" if accepted(result, allowed) and result.ended != "passed" else result.reason
        lines.append(f"| {result.job} | {result.ended} | {result.seconds or ''} | {note} |")
    return "\n".join(lines)


def accepted(result: Result, allowed: set[str]) -> bool:
    """Return True if a result is acceptable: a job may be allowed not to run, but never to fail."""
    return result.ended == "passed" or (result.ended == "not run" and result.job in allowed)


def main(words: Sequence[str]) -> int:
    """Run the jobs of a list and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("list", choices=["nightly", "release"])
    parser.add_argument("--only", action="append", default=[], metavar="JOB", help="run these alone")
    parser.add_argument("--allow", action="append", default=[], metavar="JOB", help="jobs that need not run")
    given = parser.parse_args(words)
    os.chdir(ROOT)
    KEPT.mkdir(parents=True, exist_ok=True)
    jobs: Sequence[Job] = RELEASE if given.list == "release" else NIGHTLY
    known = {job.goal for job in jobs} | {f"wheel-{machine}" for machine in SYSTEMS} | {"address"}
    if unknown := {*given.only, *given.allow} - known:
        parser.error(f"unknown jobs: {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    built, results = machines()
    if given.list == "release":
        results += address()
    if given.only:
        jobs, results = [job for job in jobs if job.goal in given.only], []
    for job in jobs:
        results.append(run(job, *([f"MACHINES={' '.join(built)}"] if job.goal == "wheels" else [])))
        print(f"{job.goal}: {results[-1].ended} {results[-1].reason}", flush=True)
    allowed = set(given.allow)
    about = {"commit": output(*DESCRIBE), "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "hardware": hardware()}
    text = "\n".join([*(f"{name}: {fact}" for name, fact in about.items()), "", table(results, allowed)])
    kept = {**about, "results": [asdict(result) for result in results]}
    (KEPT / f"{given.list}.json").write_text(json.dumps(kept, indent=1))
    (KEPT / f"{given.list}.md").write_text(f"{text}\n")
    print(f"\n{text}")
    return 0 if all(accepted(result, allowed) for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
