"""A catalogue of a million stores, names and repositories and ten million files, which SQL makes."""

from __future__ import annotations

from functools import partial
from typing import Final

from protoslice.catalog import Database, Transaction, upgrade

SPACE: Final = "bench"
STORES: Final = 1_000_000
_BATCH: Final = 20_000
_FAMILIES: Final = (
    "resnet", "bert", "yolo", "whisper", "llama", "mistral", "clip", "vit", "gpt", "t5", "roberta", "deberta",
    "efficientnet", "mobilenet", "unet", "wav2vec", "swin", "dino", "sam", "phi", "gemma", "qwen", "falcon", "mamba",
    "convnext", "densenet", "inception", "squeezenet", "albert", "electra", "bloom", "opt",
)  # fmt: skip
_VARIANTS: Final = (
    "base", "large", "small", "tiny", "xl", "uncased", "int8", "fp16", "quantized", "distilled", "chat", "instruct",
    "vision", "multilingual", "v2", "v3",
)  # fmt: skip
_TYPES: Final = ("onnx.ModelProto", "tensorflow.SavedModel", "CoreML.Specification.Model", "caffe.NetParameter")


def _choice(words: tuple[str, ...], number: str) -> str:
    """Return an expression for the word that a number chooses."""
    cases = " ".join(f"WHEN {each} THEN '{word}'" for each, word in enumerate(words))
    return f"CASE ({number}) % {len(words)} {cases} END"


_NUMBERS: Final = (
    "WITH RECURSIVE n (i) AS (SELECT CAST(:first AS bigint) UNION ALL SELECT i + 1 FROM n WHERE i < :last)"
)
_RANDOM: Final = "((i * 7919 + i / 13 * 104729) % 1000003)"
"""A number below a million and three which looks random."""
_MODEL: Final = f"{_choice(_FAMILIES, _RANDOM)} || '-' || {_choice(_VARIANTS, _RANDOM + ' / 32')} || '-' || i"
_HUB: Final = f"'org' || ({_RANDOM} % 5000) || '/' || {_MODEL}"
_SEEDS: Final = (
    f"""INSERT INTO stores (space, id, digest, type, size, held, created, weight, manifest, uploader) {{numbers}}
        SELECT '{SPACE}', i, {{digest}}, {_choice(_TYPES, _RANDOM + " / 7")}, {_RANDOM} * 4001, 0,
            1700000000000000 + i * 60000000, 900, {{manifest}}, 'user' || ({_RANDOM} % 300) FROM n""",
    f"""INSERT INTO repositories (space, id, protocol, name, created) {{numbers}}
        SELECT '{SPACE}', i + 1, 'hub', {_HUB}, 0 FROM n""",
    f"""INSERT INTO names (space, repository, kind, name, store, version, updated, label) {{numbers}}
        SELECT '{SPACE}', CASE WHEN i % 2 = 0 THEN 0 ELSE i + 1 END, CASE WHEN i % 2 = 0 THEN 'tag' ELSE 'heads' END,
            CASE WHEN i % 2 = 0 THEN {_MODEL} ELSE 'main' END, {{digest}}, {{version}}, i,
            '{SPACE}\n' || CASE WHEN i % 2 = 0 THEN {_MODEL} ELSE {_HUB} || '@main' END FROM n""",
    *(
        f"""INSERT INTO file_digests (space, sha256, store, n) {{numbers}}
            SELECT '{SPACE}', {{bytes}}, i, {number} FROM n""".replace("{key}", f"i * 10 + {number}")
        for number in range(10)
    ),
)
_DIALECTS: Final = {
    "sqlite": {
        "digest": "printf('%08x', i * 2654435761 % 4294967296) || printf('%056x', i)",
        "manifest": "zeroblob(1200)",
        "version": "zeroblob(16)",
        "bytes": "CAST(printf('%032d', i) AS blob)",
    },
    "postgresql": {
        "digest": "lpad(to_hex(i * 2654435761 % 4294967296), 8, '0') || lpad(to_hex(i), 56, '0')",
        "manifest": "decode(repeat('00', 1200), 'hex')",
        "version": "decode(repeat('00', 16), 'hex')",
        "bytes": "convert_to(lpad(i::text, 32, '0'), 'UTF8')",
    },
}


async def fill(database: Database, stores: int = STORES) -> None:
    """Create the tables of a catalogue, and fill them."""
    await upgrade(database)
    await database.alter(partial(_run, f"INSERT INTO repositories VALUES ('{SPACE}', 0, 'stores', '', 0)", {}))
    for seed in _SEEDS:
        statement = seed.format(numbers=_NUMBERS, **_DIALECTS[database.dialect])
        for first in range(1, stores + 1, _BATCH):
            values = {"first": first, "last": min(first + _BATCH - 1, stores)}
            await database.alter(partial(_run, statement, values))


def _run(sql: str, values: dict[str, int], tx: Transaction) -> None:
    tx.run(sql, **values)
