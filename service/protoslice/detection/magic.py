"""Recognition of file formats by their first bytes, such as magic numbers, headers and text."""

from __future__ import annotations

import re
from typing import Final

from protoslice import varints
from protoslice._core import crc32c

RIEGELI = bytes.fromhex("83af70d10d884a3f00000000000000004000000000000000")
"""The first block header of every riegeli file: a hash, 0 for no previous chunk, and the signature chunk's end."""

GZIP = b"\x1f\x8b\x08"
"""The first bytes of a gzip file."""

RIEGELI_BLOCK: Final = 1 << 16
"""The distance in bytes between two block headers of a riegeli file."""

_ARRAY_RECORD = b"\x10\xde\xc0\xeb\xfe\x84\xce\xc3\xc9q"
"""The magic number of ArrayRecord files. It is field 2 of the message in the file's last block."""

_TABLE = bytes.fromhex("57fb808b247547db")
_EMPTY_KEY = b"\x00\x00"
_HEADER_TAGS, _HEADER_VERSION = b"\x08\x10\x1a", 0x1A

_UNPACK = "unpack it and give the files inside"
_REFUSED = (
    (0, b"PK\x03\x04", f"a zip archive (Keras 3, PyTorch, NumPy .npz or a packed model): {_UNPACK}"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5 (Keras or h5py), not a protobuf: save it as a SavedModel or as ONNX"),
    (4, b"TFL3", "a TFLite flatbuffer, not a protobuf"),
    (4, b"ET12", "an ExecuTorch flatbuffer, not a protobuf"),
    (0, b"\x93NUMPY", "a NumPy array, not a protobuf"),
    (0, b"ML\xefR", "MLIR bytecode, not a protobuf"),
    (0, GZIP, "gzip: decompress it first"),
    (0, b"\x28\xb5\x2f\xfd", "zstd: decompress it first"),
    (0, b"\xfd7zXZ\x00", "xz: decompress it first"),
    (0, b"BZh", "bzip2: decompress it first"),
    (257, b"ustar", f"a tar archive: {_UNPACK}, or send it as application/x-tar"),
    (0, b"version https://git-lfs", "a Git LFS pointer instead of the file: run git lfs pull"),
    (0, b"<?xml", "XML (such as an OpenVINO IR), not a protobuf"),
    (0, b"\x7fELF", "a program, not a model"),
    (0, b"\xcf\xfa\xed\xfe", "a program, not a model"),
    (0, b"\0asm", "a WebAssembly module, not a protobuf"),
    (0, b"\xca\xfe\xba\xbe", "a Java class or a program, not a protobuf"),
    (1, b"\r\r\n", "compiled Python, not a protobuf"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7z archive: {_UNPACK}"),
    (0, b"Rar!\x1a\x07", f"a RAR archive: {_UNPACK}"),
    (0, b"\x04\x22\x4d\x18", "lz4: decompress it first"),
    (0, b"SQLite format 3\0", "an SQLite database, not a protobuf"),
    (0, b"PAR1", "a Parquet file, not a protobuf"),
    (0, b"ARROW1", "an Arrow file, not a protobuf"),
    (0, b"Obj\x01", "an Avro file, not a protobuf"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image, not a protobuf"),
    (0, b"\xff\xd8\xff", "a JPEG image, not a protobuf"),
    (0, b"GIF8", "a GIF image, not a protobuf"),
    (0, b"II*\0", "a TIFF image, not a protobuf"),
    (0, b"MM\0*", "a TIFF image, not a protobuf"),
    (8, b"WEBPVP8", "a WebP image, not a protobuf"),
    (8, b"WAVEfmt ", "a WAV recording, not a protobuf"),
    (4, b"ftyp", "an MP4 video or recording, not a protobuf"),
    (0, b"OggS", "an Ogg recording, not a protobuf"),
    (0, b"fLaC", "a FLAC recording, not a protobuf"),
    (0, b"ID3\x03", "an MP3 recording, not a protobuf"),
    (0, b"ID3\x04", "an MP3 recording, not a protobuf"),
    (0, b"%PDF-", "a PDF document, not a protobuf"),
)
_PICKLE: Final = (
    "a Python pickle (.bin, .pt, .pth, .pkl, .pdparams), which is stored but never loaded, as loading it can run any "
    "code: save the weights as safetensors"
)
_TORCH: Final = b"/data.pkl"
"""The end of the first file's name in archives that PyTorch writes."""
_PICKLE_NEXT = frozenset(b"}](c\x95XqU")

SAFETENSORS: Final = "protoslice.Safetensors"
"""The message type in whose form the header of a safetensors file is shown."""
GGUF: Final = "protoslice.Gguf"
"""The message type in whose form the metadata of a GGUF file is shown."""
INDEX_ENDING: Final = ".safetensors.index.json"
"""The name ending of index files, which map tensors to shards."""
PIPELINE: Final = "model_index.json"
"""The name of the file that lists the components of a diffusers pipeline."""
GGUF_MAGIC: Final = b"GGUF"

_MAX_HEADER: Final = 100_000_000
_OBJECT: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*(?:["}]|\Z)')

PROGRAM: Final = "paddle.framework.proto.ProgramDesc"
"""The message type of Paddle's programs. Programs in JSON are shown in its form too."""

_MOST_LEVELS = 1024
_MOST_ROWS = 1 << 20
_MOST_DESC = 4096
_LAST_TYPE = 38
_TYPE, _DIM, _DIMS = 0x08, 0x10, 0x12
"""The tags of a TensorDesc: the data type, a single dimension, and packed dimensions."""

_FIRST = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:[A-Za-z_]\w*|\[[\w./]+\])\s*(?::|\{|<)")
_JSON = re.compile(r"\s*(?:\{\s*(?:\"|\}\s*\Z)|\[\s*[\[{\"\d\]-])")
# The quantifiers are possessive, and unterminated strings and other words have branches: a scan takes linear time.
_TOKEN = re.compile(
    r"\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?|#[^\n]*"
    r"|(?P<bracket>[{}<>])|(?P<name>[A-Za-z_]\w*+)(?=\s*+[:{<])|\w++"
)


def refused_format(head: bytes, size: int | None) -> str | None:
    """Return a phrase with the format of an unsupported file and a remedy; None for files that may be supported."""
    if head.startswith(b"PK\x03\x04") and _TORCH in head[30:300]:
        return _PICKLE
    for offset, magic, text in _REFUSED:
        if head[offset : offset + len(magic)] == magic:
            return text
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and head[2] in _PICKLE_NEXT:
        return _PICKLE
    return None


def is_riegeli(head: bytes) -> bool:
    """Return True when `head` begins a riegeli file, which holds a chunked proto, a split proto or plain records."""
    return head.startswith(RIEGELI)


def is_array_record_end(block: bytes) -> bool:
    """Return True when `block`, the last block of a riegeli file, locates the footer of an ArrayRecord file."""
    return _ARRAY_RECORD in block[:128]


def is_table(head: bytes, size: int | None) -> bool:
    """Return True when `head` begins the index of a tensor bundle.

    The first entry of an index has an empty key, and its value is a BundleHeaderProto. The index of an old checkpoint
    has no such header. It is recognized by the end of the table, and only if `head` is the whole file.
    """
    ends = size is not None and 48 <= size <= len(head) and head[size - 8 : size] == _TABLE
    blocks = head, _literal(head)
    return any(_begins_bundle(block) or (ends and block[:2] == _EMPTY_KEY) for block in blocks)


def _begins_bundle(block: bytes) -> bool:
    """Return True when the first entry of `block` has an empty key and a BundleHeaderProto as its value."""
    if len(block) < 3 or block[:2] != _EMPTY_KEY or not 2 <= block[2] < 0x40:
        return False
    header, at = block[3 : 3 + block[2]], 0
    while 0 <= at < len(header):
        tag = header[at]
        if tag not in _HEADER_TAGS:
            return False
        value, at = varints.read(header, at + 1)
        at += value if at > 0 and tag == _HEADER_VERSION else 0
    return at == block[2]


def _literal(head: bytes) -> bytes:
    """Return the literal with which snappy data begins, after its length and tag; empty if it begins with a copy."""
    tag = next((at + 1 for at, byte in enumerate(head[:5]) if byte < 0x80), len(head))
    if head[tag : tag + 1] == b"" or head[tag] & 3:
        return b""
    return head[tag + 1 + max(0, (head[tag] >> 2) - 59) :][:80]


def first_tfrecord(head: bytes) -> bytes:
    """Return the first record of the TFRecord file that begins with `head`. It is truncated if `head` is too short."""
    return head[12 : 12 + int.from_bytes(head[:8], "little")]


def is_tfrecord(head: bytes) -> bool:
    """Return True when `head` begins with a length of eight bytes and its masked checksum, like a TFRecord file."""
    return len(head) >= 12 and int.from_bytes(head[8:12], "little") == masked(crc32c(head[:8]))


def masked(crc: int) -> int:
    """Return a CRC-32C in TensorFlow's masked form, which is rotated and offset.

    Masking makes it safe to compute a checksum of data that contains checksums.
    """
    return ((crc >> 15 | crc << 17) + 0xA282_EAD8) & 0xFFFF_FFFF


def is_safetensors(head: bytes, size: int | None) -> bool:
    """Return True when `head` begins with the length of a header and JSON, like a safetensors file."""
    length = int.from_bytes(head[:8], "little")
    fits = 2 <= length <= _MAX_HEADER and (size is None or 8 + length <= size)
    return fits and _OBJECT.match(head, 8) is not None


def is_index(name: str, text: str) -> bool:
    """Return True when the file `name` with the JSON `text` is a shard index or the index of a pipeline."""
    return name.endswith(INDEX_ENDING) or (name == PIPELINE and '"_class_name"' in text)


def is_json_program(head: bytes) -> bool:
    """Return True when `head` begins a JSON program of Paddle 3."""
    head = head[:256].lstrip()
    return head[:1] == b"{" and b'"base_code"' in head and b'"pir"' in head


def is_parameters(head: bytes) -> bool:
    """Return True when `head` begins a file with one or more tensors of Paddle."""
    return _begins_tensor(head, _after_levels(head)) or has_rows(head)


def has_rows(head: bytes) -> bool:
    """Return True when `head` begins a file with selected rows of one Paddle tensor."""
    # The same eight bytes hold the number of levels of a dense tensor, or the number of selected rows.
    return not _begins_tensor(head, _after_levels(head)) and _begins_tensor(head, _after_rows(head))


def _after_levels(head: bytes) -> int | None:
    """Return the offset after the levels of detail of a dense tensor; None if they are invalid."""
    levels, at = int.from_bytes(head[4:12], "little"), 12
    if levels > _MOST_LEVELS:
        return None
    for _ in range(levels):
        length = int.from_bytes(head[at : at + 8], "little")
        at += 8 + length
        if length % 8 or at > len(head):
            return None
    return at


def _after_rows(head: bytes) -> int | None:
    """Return the offset after the row numbers and the height of selected rows; None for more than 1,048,576 rows."""
    rows = int.from_bytes(head[4:12], "little")
    return 12 + 8 * rows + 8 if rows <= _MOST_ROWS else None


def _begins_tensor(head: bytes, at: int | None) -> bool:
    """Return True when a tensor's header is at offset `at`: a version of 0 and a complete TensorDesc.

    The first four bytes of `head` must be a version of 0 too.
    """
    if at is None or head[:4] != bytes(4) or head[at : at + 4] != bytes(4):
        return False
    length, start = int.from_bytes(head[at + 4 : at + 8], "little"), at + 8
    desc = head[start : start + length]
    return 2 <= length <= _MOST_DESC and len(desc) == length and _is_desc(desc)


def _is_desc(desc: bytes) -> bool:
    if desc[0] != _TYPE or desc[1] > _LAST_TYPE:
        return False
    at = 2
    while 0 < at < len(desc):
        tag = desc[at]
        value, at = varints.read(desc, at + 1)
        if tag not in (_DIM, _DIMS):
            return False
        at += value if at > 0 and tag == _DIMS else 0
    return at == len(desc)


def decoded(head: bytes) -> str | None:
    """Return `head` as text without an incomplete last character; None if `head` is not printable UTF-8."""
    try:
        return _printable(head.decode())
    except UnicodeDecodeError as error:
        return _printable(head[: error.start].decode()) if error.reason == "unexpected end of data" else None


def _printable(text: str) -> str | None:
    plain = all(char >= " " or char in "\t\r\n" for char in text) and "\x7f" not in text
    return text if plain and text.strip() else None


def is_json(text: str) -> bool:
    """Return True when `text` begins a JSON object or array."""
    return _JSON.match(text) is not None


def outer_fields(text: str) -> set[str] | None:
    """Return the names of the outermost fields if `text` is a message in text format; None for other text."""
    if _FIRST.match(text) is None:
        return None
    names, depth = set[str](), 0
    for token in _TOKEN.finditer(text):
        if bracket := token["bracket"]:
            depth += 1 if bracket in "{<" else -1
        elif depth == 0 and token["name"]:
            names.add(token["name"])
    return names
