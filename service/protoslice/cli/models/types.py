"""Message types that the command line names."""

from __future__ import annotations

from dataclasses import dataclass

from protoslice.schema import MessageTypes


@dataclass(frozen=True, slots=True)
class RootType:
    """Message type of a root or of records, as the command line names it; None leaves each to detection."""

    name: str | None = None
    types: MessageTypes | None = None
    """Types of a schema file, which go before the bundled ones."""

    @property
    def given(self) -> bool:
        """True when the command line says anything about the type."""
        return self.name is not None or self.types is not None

    def descriptor_set(self, name: str) -> bytes:
        """Canonical descriptor set of the type `name`; empty for a type that the schema file does not declare."""
        return self.types.canonical(name) if self.types is not None and name in self.types else b""
