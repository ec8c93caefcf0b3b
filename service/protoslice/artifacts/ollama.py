"""GGUF models as Ollama and llama.cpp read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from protoslice.catalog.syntax import Digest, ManifestUnknown
from protoslice.errors import InvalidInput, Unsupported
from protoslice.formats.gguf import GgufFacts
from protoslice.serving.finding import FileRef

MEDIA_TYPE: Final = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG: Final = "application/vnd.docker.container.image.v1+json"
_LAYER: Final = "application/vnd.ollama.image."
TEXTS: Final = {"template": "template", "params": "params", "system": "system", "LICENSE": "license"}
"""Kind of a layer by the path of a file that is one, as it is."""
MOST_TEXT: Final = 1 << 20
"""Bytes of the largest file that becomes a layer of text."""
_SUFFIX: Final = ".gguf"
_PROJECTOR: Final = re.compile(r"(?i)(^|/|[-._])mmproj")
_SPLIT: Final = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)", re.IGNORECASE)
_FIRST: Final = re.compile(r"-00001-of-\d{5}\.gguf$", re.IGNORECASE)
_PREFERRED: Final = ("Q4_K_M", "Q4_0", "Q8_0")


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Marks around the messages of a chat format, which a chat template with the words `mark` has."""

    mark: tuple[str, ...]
    system: tuple[str, str]
    user: tuple[str, str]
    assistant: tuple[str, str]
    stop: tuple[str, ...]

    @property
    def template(self) -> str:
        """The template that Ollama fills."""
        before, after = self.system
        system = f"{{{{ if .System }}}}{before}{{{{ .System }}}}{after}{{{{ end }}}}" if before or after else ""
        (start, end), (answer, stop) = self.user, self.assistant
        prompt = f"{{{{ if .Prompt }}}}{start}{{{{ .Prompt }}}}{end}{{{{ end }}}}"
        return f"{system}{prompt}{answer}{{{{ .Response }}}}{stop}"


def _by_role(
    mark: tuple[str, ...], start: str, end: str, roles: tuple[str, str, str] = ("system", "user", "assistant")
) -> ChatFormat:
    """Format whose messages differ in the name of the role alone."""
    system, user, assistant = ((start.replace("ROLE", role), end) for role in roles)
    named = start.strip().startswith("<|ROLE")
    stops = [f"<|{role}|>" for role in roles[:2]] if named else [start.partition("ROLE")[0]]
    return ChatFormat(mark, system, user, assistant, (*stops, end.strip()))


CHATS: Final = (
    _by_role(("<|im_start|>",), "<|im_start|>ROLE\n", "<|im_end|>\n"),
    _by_role(("<|start_header_id|>",), "<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>"),
    _by_role(("<start_of_turn>",), "<start_of_turn>ROLE\n", "<end_of_turn>\n", ("user", "user", "model")),
    _by_role(("<|user|>", "<|end|>"), "<|ROLE|>\n", "<|end|>\n"),
    _by_role(("<|user|>",), "<|ROLE|>\n", "</s>\n"),
    ChatFormat(
        ("[INST]",),
        ("", ""),
        ("[INST] {{ if .System }}{{ .System }}\n\n{{ end }}", " [/INST] "),
        ("", "</s>"),
        ("[INST]", "[/INST]"),
    ),
)


def chosen(files: Iterable[str], quantization: str | None, *, splits: bool = False) -> str:
    """Return the path of the GGUF file of a quantization, or of the usual one.

    With `splits`, it may be the first split of a file.

    Raise `ManifestUnknown` if there is none, `InvalidInput` if there are others, whose names Ollama shows upon this
    error alone, and `Unsupported` if there are only splits.
    """
    found = sorted(path for path in files if path.lower().endswith(_SUFFIX) and not _PROJECTOR.search(path))
    whole = [path for path in found if not _SPLIT.search(path) or (splits and _FIRST.search(path))]
    for wanted in _PREFERRED if quantization is None else (quantization,):
        if fitting := [path for path in whole if _is_of(path, wanted)]:
            return fitting[0]
    if quantization is None and whole:
        return whole[0]
    if quantization is None and found:
        raise Unsupported("Ollama cannot load split GGUF files: join them with `llama-gguf-split --merge`")
    if not found:
        raise ManifestUnknown("No GGUF file in this revision")
    known = ", ".join(PurePosixPath(path).name for path in found[:20])
    raise InvalidInput(f"No GGUF file of {(quantization or '')[:80]!r}: this revision has {known}")


def projector(files: Iterable[str]) -> str | None:
    """Return the path of the file that projects images, or None if there is none."""
    return min((path for path in files if path.lower().endswith(_SUFFIX) and _PROJECTOR.search(path)), default=None)


def _is_of(path: str, quantization: str) -> bool:
    return (
        re.search(rf"(?i)(^|[-._/]){re.escape(quantization)}(\.gguf)?$", _SPLIT.sub("", path).removesuffix(_SUFFIX))
        is not None
    )


def files_for_llama(files: Mapping[str, FileRef], quantization: str | None) -> dict[str, object]:
    """Return the files of a model as llama.cpp asks for them before it downloads them by path."""
    found = {"ggufFile": chosen(files, quantization, splits=True), "mmprojFile": projector(files)}
    return {kind: {"rfilename": path, "size": files[path].size} for kind, path in found.items() if path is not None}


def texts_of(facts: GgufFacts, given: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the layers of text by kind: those `given`, and what the header of the model says."""
    made = dict(given)
    chat = next((each for each in CHATS if all(mark in facts.chat_template for mark in each.mark)), None)
    if chat is not None and "template" not in made:
        made["template"] = chat.template.encode()
        made.setdefault("params", json.dumps({"stop": chat.stop}).encode())
    if facts.license:
        made.setdefault("license", facts.license.encode())
    return made


def config_of(facts: GgufFacts, layers: Iterable[str]) -> bytes:
    """Return the config of a model whose layers have these digests."""
    return json.dumps(
        {
            "model_format": "gguf",
            "model_family": facts.architecture,
            "model_families": [facts.architecture],
            "model_type": _rounded(facts.parameters),
            "file_type": facts.file_type,
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": list(layers)},
        }
    ).encode()


def manifest_of(config: bytes, model: FileRef, projected: FileRef | None, texts: Mapping[str, bytes]) -> bytes:
    """Return the manifest."""
    layers = [_layer("model", f"sha256:{model.sha256}", model.size)]
    if projected is not None:
        layers.append(_layer("projector", f"sha256:{projected.sha256}", projected.size))
    layers += [_layer(kind, Digest.of(text).text, len(text)) for kind, text in sorted(texts.items())]
    about = {"mediaType": CONFIG, "digest": Digest.of(config).text, "size": len(config)}
    return json.dumps({"schemaVersion": 2, "mediaType": MEDIA_TYPE, "config": about, "layers": layers}).encode()


def _layer(kind: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": _LAYER + kind, "digest": digest, "size": size}


def _rounded(count: int) -> str:
    """Number of parameters as people write it: 1.1B."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + unit
    return str(count)
