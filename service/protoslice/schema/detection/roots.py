"""Message types that detection recognizes by structure, and the fields required of each."""

from __future__ import annotations

from protoslice.schema.detection.probe import Evidence

Path = tuple[int, ...]

# Root type → alternative sets of fields, one of which must have been met in full. Many messages begin with a few
# strings or numbers; these fields tell the types apart.
_MARKS: dict[str, tuple[frozenset[Path], ...]] = {}


def _root(name: str, *alternatives: str) -> None:
    """Register a root type; an alternative `2 1.3` requires field 2, and field 3 within field 1."""
    _MARKS[name] = tuple(
        frozenset(tuple(int(number) for number in path.split(".")) for path in each.split()) for each in alternatives
    )


_root("tensorflow.SavedModel", "2.1", "2.2", "2.5", "2.7")
_root("tensorflow.GraphDef", "1.2", "2.1", "1 4.1")
_root("tensorflow.MetaGraphDef", "1.2", "1.5", "1.4 2", "2.1")
_root("tensorflow.TensorProto", "1 2")
_root("tensorflow.FingerprintDef", "1 2 3 4")
_root("onnx.ModelProto", "7", "1 8.2")
_root("onnx.TensorProto", "2 9", "1 2")
# An OptionalProto of a tensor is the same on the wire.
_root("onnx.SequenceProto", "2 3.1 3.2", "2 3.2 3.9")
_root("paddle.framework.proto.ProgramDesc", "1.1 1.3", "1.1 1.4")
_root("CoreML.Specification.Model", "1 2", "1 500", "1 502", "1 202")
_root("caffe.NetParameter", "100.1", "100.2", "2.4", "2.5", "2.1")
_root("CNTK.proto.Dictionary", "2.2")
_root("xla.HloModuleProto", "3.2", "1 2 3")
_root("xla.HloProto", "1.3", "1.1 1.2")
_root("xla.HloSnapshot", "1.1")
_root("xla.HloUnoptimizedSnapshot", "1.3 2")
_root("xla.SplitProtoManifest", "1 2.2", "1 2.3")
_root("google.protobuf.FileDescriptorSet", "1.1 1.4", "1.1 1.5", "1.1 1.6", "1.1 1.12")

CANDIDATES = tuple(_MARKS)
"""Root types; of two with the same score, the earlier one is taken."""


def shows_marks(name: str, evidence: Evidence) -> bool:
    """True when `evidence` has the fields required of `name`, and for types without requirements."""
    return name not in _MARKS or any(marks <= evidence.seen for marks in _MARKS[name])
