"""Descriptors as they are here: the runtime's stubs are unsure of what is always there."""

from __future__ import annotations

from typing import cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message


def descriptor_of(message: Message | type[Message]) -> Descriptor:
    """The descriptor of a message or of its class."""
    return cast(Descriptor, message.DESCRIPTOR)


def message_of(field: FieldDescriptor) -> Descriptor:
    """The message type of a field that has one."""
    return cast(Descriptor, field.message_type)


def enum_of(field: FieldDescriptor) -> EnumDescriptor:
    """The enum of a field that has one."""
    return cast(EnumDescriptor, field.enum_type)


def fields_of(message: Message | type[Message]) -> list[FieldDescriptor]:
    """The fields that a message may have."""
    return list(descriptor_of(message).fields)
