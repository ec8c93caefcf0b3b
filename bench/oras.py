"""Benchmark of oras: a file of 2 GiB pushed and pulled, beside the registry of `distribution`.

Both keep it in folders of one disk, which both sync before they answer (28 times for one push, as `strace` counts
of distribution 3.1.2), and again in memory, where a sync costs nothing. Rounds of the two take turns; no two files are
alike, since what is there already is not sent.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.service import free_port, running, running_service, wait_for
from bench.timing import Row, seconds

ORAS: Final = Path(__file__).parent.parent / ".make/oras"
DISTRIBUTION: Final = ORAS.with_name("registry")
SIZE: Final = 2 << 30
ROUNDS: Final = 3
MEMORY: Final = Path("/dev/shm")
_CONFIG: Final = """version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


class _Times(NamedTuple):
    """Seconds of one round at one registry."""

    push: float
    pull: float


def oras(folder: Path, scale: float) -> Iterator[Row]:
    """Rows about oras."""
    missing = [f"make .make/{program.name}" for program in (ORAS, DISTRIBUTION) if not program.exists()]
    if missing:
        raise SystemExit(f"build the programs first: {', '.join(missing)}")
    size, rounds = max(1 << 20, int(SIZE * scale)), ROUNDS if scale >= 1 else 1
    yield from _rows(folder, "on the disk", size, rounds)
    with TemporaryDirectory(prefix="protoslice-oras-", dir=MEMORY) as memory:
        yield from _rows(Path(memory), "in memory", size, rounds)


def _rows(folder: Path, where: str, size: int, rounds: int) -> Iterator[Row]:
    ours, peer = _measured(folder / "oras", size, rounds)
    for what, bar, mine, theirs in (("pushed", 0.7, ours.push, peer.push), ("pulled", 0.9, ours.pull, peer.pull)):
        name = f"{size >> 20} MiB {what} by oras, {where}, against distribution"
        yield Row(name, seconds(mine), seconds(theirs), theirs / mine, bar)


def _measured(folder: Path, size: int, rounds: int) -> tuple[_Times, _Times]:
    """The medians of both registries, ours first, with everything in a folder."""
    folder.mkdir()
    with ExitStack() as stack:
        hosts = [stack.enter_context(running_service(folder / "stores")).removeprefix("http://")]
        hosts.append(stack.enter_context(_distribution(folder)))
        kept: tuple[list[_Times], list[_Times]] = ([], [])
        for number in range(rounds + 1):
            model = folder / "model.bin"
            _write(model, size)
            # Turns change, since the second one finds the file in the page cache as the first one left it.
            for side in (0, 1) if number % 2 else (1, 0):
                times = _round(folder, hosts[side])
                if number:  # the first one warms up
                    kept[side].append(times)
    shutil.rmtree(folder)
    ours, peer = (_Times(*map(statistics.median, zip(*times, strict=True))) for times in kept)
    return ours, peer


def _round(folder: Path, host: str) -> _Times:
    """Push the model under a tag, and pull it by the tag."""
    ref, copy = f"{host}/bench/model:v1", folder / "copy"
    os.sync()
    push = _timed(lambda: _oras(folder, "push", "--plain-http", ref, "model.bin"))
    pull = _timed(lambda: _oras(folder, "pull", "--plain-http", "--output", str(copy), ref))
    if (copy / "model.bin").stat().st_size != (folder / "model.bin").stat().st_size:
        raise SystemExit(f"oras pulled another file from {host} than it had pushed")
    shutil.rmtree(copy)
    return _Times(push, pull)


def _oras(folder: Path, *said: str) -> None:
    subprocess.run([ORAS, *said], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        block = os.urandom(1 << 20)
        for number in range(-(-size // len(block))):
            file.write(number.to_bytes(8, "little") + block[8:])


@contextmanager
def _distribution(folder: Path) -> Iterator[str]:
    """The host of a registry over a folder below `folder`."""
    port, config = free_port(), folder / "registry.yaml"
    config.write_text(_CONFIG.format(folder=folder / "registry", port=port))
    with running([str(DISTRIBUTION), "serve", str(config)], dict(os.environ)):
        wait_for(port)
        yield f"127.0.0.1:{port}"
