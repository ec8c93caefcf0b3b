"""Probes of waiting: the behaviour of a proxy while one side is silent."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from typing import Final

from protoslice.cli.probing.probed_service import CannotTell, ProbedService
from protoslice.errors import StorageUnavailable

PAUSE_SECONDS: Final = 6.0
"""Seconds of a pause: beyond any timeout chosen for web pages, yet bearable for a person who waits."""
UNREAD_SECONDS: Final = 4.0
"""Seconds in which a proxy that takes what nobody reads has taken it all."""
_COUNTED_SECONDS: Final = 4.0
AGAIN_SECONDS: Final = 0.25
_SENT: Final = re.compile(r'^protoslice_sent_bytes_total\{.*/tensors/\{name:path\}".*\} (\S+)$', re.MULTILINE)


def uploads_may_pause(service: ProbedService) -> str | None:
    """Fault of a way that breaks off a body which is silent for a while, as of a slow disk; else None."""
    with service.upload(3) as place:
        try:
            answer = service.send_slowly(place, b"\x08\x01", PAUSE_SECONDS)
        except (StorageUnavailable, TimeoutError):
            answer = None
    if answer is not None and (answer.status == 204 or answer.is_ours):
        return None
    if answer is not None and answer.status not in {408, 502, 504}:
        return f"PATCH, which resumes an upload, returns {answer.status}"
    said = "interrupted" if answer is None else f"answered with {answer.status}"
    return f"an upload that pauses for {PAUSE_SECONDS:g} seconds is {said}: slow clients have to start over"


def answers_wait(service: ProbedService) -> str | None:
    """Fault of a way that takes a long answer from the service before a client reads it; else None."""
    if service.large is None:
        raise CannotTell("not tested with --store, because that store may be too small")
    path, size = service.large
    before = _sent(service)
    with service.unread(path):
        if _passes(lambda: _sent(service) == before + size, UNREAD_SECONDS):
            return f"the proxy buffers responses: it read {size >> 20} MiB that the client had not asked for yet"
    if not _passes(lambda: _sent(service) != before, _COUNTED_SECONDS):
        raise CannotTell("not tested, because /metrics shows the numbers of another process or service")
    return None


def _sent(service: ProbedService) -> float:
    """Bytes of tensors that the service has sent, in completed answers; a unique query bypasses caches."""
    answer = service.ask("GET", f"/metrics?{secrets.token_hex(8)}", headers={"cache-control": "no-cache"})
    if answer.status != 200 or b"protoslice_sent_bytes" not in answer.body:
        raise CannotTell("not tested, because /metrics is not reachable here")
    return sum(map(float, _SENT.findall(answer.body.decode("utf-8", "replace"))))


def _passes(condition: Callable[[], bool], seconds: float) -> bool:
    """True once the condition holds; False when it does not within so many seconds."""
    end = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(AGAIN_SECONDS)
    return true
