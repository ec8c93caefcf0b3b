"""Files that declare message types: descriptor sets, and `.proto` files, which are compiled."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from protoslice import schema
from protoslice.cli.models.files import errors_about
from protoslice.cli.models.source import RootType
from protoslice.errors import CorruptModel, LimitExceeded, NotFound, Unsupported
from protoslice.schema.types import MAX_BYTES
from protoslice.sources.opening import as_source, opened_by

_COMPILED_BY_HAND: Final = "protoc --include_imports --descriptor_set_out=FILE.binpb"


def root_type(name: str | None, schema_file: str | None) -> RootType:
    """Return the type that the options `--type` and `--schema` select. Both options may be None.

    `schema_file` is a descriptor set or a `.proto` file. Errors mention this file. Raise `Unsupported` if the file does
    not declare the type `name`.
    """
    if schema_file is None:
        return RootType(name)
    data = descriptor_set_in(schema_file)
    with errors_about(schema_file):
        types = schema.from_descriptor_set(data)
        if name is not None:
            schema.find(name, [types])
    return RootType(name, types)


def descriptor_set_in(name: str) -> bytes:
    """Return the serialized descriptor set at the path or URI `name`. A `.proto` file is compiled first."""
    with errors_about(name):
        return _compiled(Path(name)) if name.endswith(".proto") else _read(name)


def _read(name: str) -> bytes:
    source = as_source(name)
    try:
        if source.size > MAX_BYTES:
            raise LimitExceeded(f"The descriptor set is too large: {source.size} bytes, at most {MAX_BYTES} allowed")
        return source.read(0, source.size)
    finally:
        for taken in opened_by(source, name):
            taken.close()


def _compiled(file: Path) -> bytes:
    """Compile a `.proto` file, and return its descriptor set. Imports must be in the same folder."""
    if not file.is_file():
        raise NotFound("File not found")
    if find_spec("grpc_tools") is None:
        raise Unsupported(
            "Compiling a .proto file needs grpcio-tools: run pip install grpcio-tools, or pass the "
            f"output of {_COMPILED_BY_HAND}"
        )
    with tempfile.TemporaryDirectory(prefix="protoslice-") as folder:
        out = Path(folder, "compiled.binpb")
        # The compiler runs in a separate process, so that its messages on standard error can be captured.
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{file.parent}", "--include_imports"]
        done = subprocess.run(
            [*command, f"--descriptor_set_out={out}", str(file)], capture_output=True, text=True, check=False
        )
        if done.returncode or not out.exists():
            reason = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
            why = reason[:500] or "the compiler failed"
            raise CorruptModel(f"{why}; if imports are in other folders, pass the output of {_COMPILED_BY_HAND} -I…")
        return _read(str(out))
