"""`RecordsMetadata`: optional description of a riegeli file before its first record."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

_Field = descriptor_pb2.FieldDescriptorProto
_FIELDS = (
    ("file_comment", 1, _Field.LABEL_OPTIONAL, _Field.TYPE_STRING, None),
    ("record_type_name", 2, _Field.LABEL_OPTIONAL, _Field.TYPE_STRING, None),
    ("file_descriptor", 3, _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE, ".google.protobuf.FileDescriptorProto"),
    ("record_writer_options", 4, _Field.LABEL_OPTIONAL, _Field.TYPE_STRING, None),
    ("num_records", 5, _Field.LABEL_OPTIONAL, _Field.TYPE_INT64, None),
)


def _message_class() -> type[Message]:
    """Message class from a private descriptor pool."""
    # The default pool may already hold the class of another library.
    file = descriptor_pb2.FileDescriptorProto(
        name="riegeli/records/records_metadata.proto",
        package="riegeli",
        syntax="proto2",
        dependency=["google/protobuf/descriptor.proto"],
    )
    message = file.message_type.add(name="RecordsMetadata")
    for name, number, label, kind, type_name in _FIELDS:
        message.field.add(name=name, number=number, label=label, type=kind, type_name=type_name)
    message.extension_range.add(start=1000, end=1 << 29)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("riegeli.RecordsMetadata"))


RecordsMetadata = _message_class()
