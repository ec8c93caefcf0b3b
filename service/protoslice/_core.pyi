"""The wire engine: bytes in, facts out."""

from collections.abc import Sequence
from typing import final

__all__ = ["Schema"]

@final
class Schema:
    """Message types that refer to each other, as `protoslice.schema` flattened them."""

    def __new__(
        cls,
        messages: Sequence[tuple[str, bool, Sequence[tuple[int, str, int, bool, int, int]]]],
        enums: Sequence[dict[str, int]],
    ) -> Schema: ...
    @property
    def message_names(self) -> list[str]: ...
    def type_named(self, name: str) -> int | None: ...
    def __len__(self) -> int: ...
