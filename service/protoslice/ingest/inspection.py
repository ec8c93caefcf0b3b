"""The inspection of a file while its bytes arrive: its digest, its kind, and a proto's index. All calls block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from protoslice import _core, errors
from protoslice.catalog.manifest import checked, with_digest
from protoslice.detection import HEAD, Detection, detect
from protoslice.errors import ProtosliceError, Unsupported
from protoslice.facts import UNKNOWN
from protoslice.serving.schemas import Types

SCANNED = ("proto", "unknown")
_VERSION = 2


@dataclass(slots=True)
class Scan:
    """The result of scanning a file as a proto of the type `type`: an index or an error."""

    type: str | None
    index: bytes | None = None
    error: ProtosliceError | None = None


@dataclass(frozen=True, slots=True)
class InspectedFile:
    """The result of an inspection."""

    sha256: bytes
    detection: Detection
    scan: Scan | None


class Inspection:
    """An incremental inspection of one file.

    Its state can be saved after any piece, and another process can load it.
    """

    def __init__(self, path: str, wanted: str | None, types: Types) -> None:
        self.size = 0
        """The number of bytes taken so far."""
        self._path = path
        self._wanted = wanted
        self._types = types
        self._sha = _core.Sha256()
        self._head = bytearray()
        self._detection: Detection | None = None
        self._scan: Scan | None = None
        self._scanner: _core.Scanner | None = None

    @property
    def sha256(self) -> bytes:
        """The SHA-256 of the bytes taken so far."""
        return self._sha.digest()

    def take(self, piece: bytes | memoryview, sums: _core.BlockSums | None = None) -> None:
        """Take the next bytes of the file, and add them to the block checksums `sums`, unless `sums` is None."""
        self.size += len(piece)
        with self._scanning():
            self._sha.update(piece, sums, self._scanner)
        if self._detection is None:
            self._head += piece
            if len(self._head) >= HEAD:
                self._feed(self._look_at_head())

    def finish(self) -> InspectedFile:
        """End the file and return its digest, detection and scan."""
        if self._detection is None:
            self._feed(self._look_at_head())
        assert self._detection is not None
        with self._scanning():
            if self._scan is not None and self._scanner is not None:
                self._scan.index = self._scanner.finish(self.size)
        return InspectedFile(self.sha256, self._detection, self._scan)

    def look(self, head: bytes) -> tuple[Detection, Scan | None]:
        """Detect a file's kind from its first `HEAD` bytes; return the detection and a scan that has no result yet."""
        self._head += head
        self._look_at_head()
        assert self._detection is not None
        return self._detection, self._scan

    def save(self) -> bytes | None:
        """Return the state for `load`, or None while so few bytes were taken that reading them again costs less."""
        if self._detection is None:
            return None
        scan = self._scan
        data = {
            "version": _VERSION,
            "as": self._inspected_as(scan.type if scan else None),
            "size": self.size,
            "sha256": self._sha.save().hex(),
            "detection": asdict(self._detection),
            "scan": None if scan is None else [scan.type, _told(scan.error)],
            "scanning": self._scanner is not None,
        }
        return with_digest(json.dumps(data).encode() + b"\n" + (self._scanner.save() if self._scanner else b""))

    @classmethod
    def load(cls, saved: bytes, path: str, wanted: str | None, types: Types, head: bytes | None = None) -> Inspection:
        """Restore an inspection from the result of `save`; raise if file, type, schema or format version differ.

        If the file's `head` is given, the state may come from another path, unless `path` makes the file a proto of
        another type.
        """
        first, _, scanner = checked(saved, "the state of an upload").partition(b"\n")
        data = json.loads(first)
        found = cls(path, wanted, types)
        if head is not None and data["as"][0] != path:
            detection, scan = cls(path, wanted, types).look(head)
            if scan is None:
                data |= {"scan": None, "scanning": False, "as": found._inspected_as(None)}
            elif data["scan"] is not None and data["scan"][0] == scan.type:
                data["as"][0] = path
            data["detection"] = asdict(detection)
        name = data["scan"][0] if data["scan"] is not None else None
        if data["version"] != _VERSION or data["as"] != found._inspected_as(name):
            raise Unsupported(
                "the saved state of the upload is for another file, another schema or another version of the service"
            )
        found.size = data["size"]
        found._sha = _core.Sha256.load(bytes.fromhex(data["sha256"]))
        found._detection = Detection(**data["detection"])
        if data["scan"] is not None:
            name, error = data["scan"]
            found._scan = Scan(name, error=_error(error))
            if data["scanning"]:
                found._scanner = _core.Scanner.load(scanner, types.flat(name) if name else None, name)
        return found

    def _inspected_as(self, name: str | None) -> list[str | None]:
        """Return the facts that a saved state depends on: the path, the requested type and the schema's fingerprint."""
        return [self._path, self._wanted, self._types.of(name).fingerprint if name else None]

    def _look_at_head(self) -> bytes:
        """Detect the file's kind from its head, begin a scan if it may be a proto, and return the head."""
        head, self._head = bytes(self._head), bytearray()
        self._detection = detect(head, self._path.rpartition("/")[2], None)
        if self._detection.kind in SCANNED or (self._wanted and self._detection.kind in {"refused", "text"}):
            name = None if self._wanted == UNKNOWN else self._wanted or self._detection.type_name
            self._scan = Scan(name)
            try:
                self._scanner = _core.Scanner(self._types.flat(name) if name else None, name)
            except ProtosliceError as error:
                self._scan.error = error.with_traceback(None)
        return head

    def _feed(self, head: bytes) -> None:
        with self._scanning():
            if self._scanner is not None:
                self._scanner.feed(head)

    @contextmanager
    def _scanning(self) -> Iterator[None]:
        """Store errors from the `with` block in the scan."""
        # The error is not raised, because the file may not be the root. If it is, `choose_root` reports the error.
        try:
            yield
        except ProtosliceError as error:
            if self._scan is None:
                raise
            # The error is kept until the ingest ends, but without its frames, which would keep the batch in memory.
            self._scan.error, self._scanner = error.with_traceback(None), None


def _told(error: ProtosliceError | None) -> list[Any] | None:
    return None if error is None else [type(error).__name__, error.message, error.offset, error.path]


def _error(told: list[Any] | None) -> ProtosliceError | None:
    if told is None:
        return None
    kind = getattr(errors, told[0])
    assert issubclass(kind, ProtosliceError)
    found: ProtosliceError = kind(*told[1:])
    return found
