"""Memory of the C library is used again."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

_FAULTS: Final = """
import resource, sys
from protoslice.server.transport.run import keep_freed_memory
kept = sys.argv[1] == "kept" and keep_freed_memory()
assert kept or sys.argv[1] != "kept"
def turn():
    pieces = [b"x" * int(sys.argv[2]) for _ in range(4)]
for _ in range(5):
    turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str, size: int) -> int:
    done = subprocess.run([sys.executable, "-c", _FAULTS, how, str(size)], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_pieces_fault_in_their_memory_once() -> None:
    assert _faults("kept", 1 << 20) < 500
    assert _faults("plain", 1 << 20) > 5000, "without it, each piece takes new memory"


def test_reads_of_some_mebibytes_do_too() -> None:
    """A fixed threshold below them would be worse than glibc's own, which grows."""
    assert _faults("kept", 5 << 20) < 3000
