"""Message types by file name."""

from __future__ import annotations

KERAS = "third_party.tensorflow.python.keras.protobuf.SavedMetadata"
_HLO = ("xla.HloModuleProto", "xla.HloProto", "xla.HloSnapshot", "xla.HloUnoptimizedSnapshot")
_DESCRIPTORS = ("google.protobuf.FileDescriptorSet",)

_WARMUP = "tf_serving_warmup_requests"
_EVENTS = ".tfevents."
"""Part of the names of event files, which end in a time and a machine."""

_NAMES = {
    "saved_model.pb": ("tensorflow.SavedModel",),
    "fingerprint.pb": ("tensorflow.FingerprintDef",),
    "saved_model_debug_info.pb": ("tensorflow.GraphDebugInfo",),
    "keras_metadata.pb": (KERAS,),
    "__model__": ("paddle.framework.proto.ProgramDesc",),
    _WARMUP: ("tensorflow.serving.PredictionLog",),
    "checkpoint": ("tensorflow.CheckpointState",),
}
_ENDINGS = {
    ".onnx": ("onnx.ModelProto",),
    ".meta": ("tensorflow.MetaGraphDef",),
    ".pdmodel": ("paddle.framework.proto.ProgramDesc",),
    ".mlmodel": ("CoreML.Specification.Model",),
    ".caffemodel": ("caffe.NetParameter",),
    ".prototxt": ("caffe.NetParameter",),
    ".binaryproto": ("caffe.BlobProto",),
    ".solverstate": ("caffe.SolverState",),
    ".hlo_unoptimized_snapshot.pb": ("xla.HloUnoptimizedSnapshot",),
    ".hlo_proto.pb": _HLO,
    ".hlo_snapshot.pb": _HLO,
    ".hlo.pb": _HLO,
    ".hlo": _HLO,
    ".dnn": ("CNTK.proto.Dictionary",),
    ".cntk": ("CNTK.proto.Dictionary",),
    ".desc": _DESCRIPTORS,
    ".fds": _DESCRIPTORS,
    ".protoset": _DESCRIPTORS,
    ".binpb": _DESCRIPTORS,
}
TEXT = (".pbtxt", ".textproto", ".txtpb")


def usual_types(filename: str | None) -> tuple[str, ...]:
    """Usual types of a file with this name, the likeliest first; empty if the name has no meaning."""
    name = base_name(filename)
    for ending in (".cpb", *TEXT):
        if name.endswith(ending):
            name = name.removesuffix(ending) + ".pb"
    if _EVENTS in name:
        return ("tensorflow.Event",)
    if name in _NAMES:
        return _NAMES[name]
    plain = name.removesuffix(".pb")
    return next((types for ending, types in _ENDINGS.items() if name.endswith(ending) or plain.endswith(ending)), ())


def means_records(filename: str | None) -> bool:
    """True when a file of this name holds records and not one message."""
    name = base_name(filename)
    return name == _WARMUP or _EVENTS in name


def means_text(filename: str | None) -> bool:
    """True when a text file of this name is a proto in text format."""
    return base_name(filename).endswith((*TEXT, ".prototxt")) or bool(usual_types(filename))


def base_name(filename: str | None) -> str:
    """The last segment of a path, in lower case; empty for None."""
    return (filename or "").replace("\\", "/").rpartition("/")[2].lower()
