"""Kept schemas with the well-known types in the files that the protobuf runtime expects them in.

A kept schema is one file without the names of oneofs. The runtime renders some types of `google.protobuf` in a form of
their own, and identifies them by these names: wrappers by their file, the kinds of a `Value` by their oneof.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from protoslice.errors import InvalidInput
from protoslice.schema.types import from_descriptor_set, pool_of

_MODULES: Final = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_PACKAGE: Final = ("google", "protobuf")


def with_well_known(descriptor_set: bytes) -> bytes:
    """The canonical `descriptor_set` with the well-known types in separate files, before all others.

    A set stays one file, with the oneof of `Value` named, if it declares such a type in another way or if its packages
    below `google` depend on each other.
    """
    found = FileDescriptorSet.FromString(descriptor_set)
    if len(found.file) != 1:
        return descriptor_set
    divided = _divided(found.file[0])
    if divided is not None:
        try:
            pool_of(divided)
        except InvalidInput:
            pass
        else:
            return divided
    _name_oneof(found.file[0])
    return found.SerializeToString()


def _divided(file: FileDescriptorProto) -> bytes | None:
    """Return the set as files: well-known types, `google.protobuf`, `google`, everything else."""
    standard = _standard()
    rest = FileDescriptorProto()
    rest.CopyFrom(file)
    files = FileDescriptorSet.FromString(_standard_set()).file
    names = [each.name for each in files]
    packages: list[FileDescriptorProto] = []
    scopes: list[DescriptorProto] = []
    nested = rest.message_type
    for part in _PACKAGE:
        scope = next((each for each in nested if each.name == part), None)
        if scope is None:
            break
        if scope.field or scope.oneof_decl or scope.HasField("options"):
            return None  # a message
        scopes.append(scope)
        nested = scope.nested_type
    if len(scopes) == len(_PACKAGE):
        for message in list(scopes[-1].nested_type):
            known = standard.get(message.name)
            if known is None:
                continue
            if known != message:
                return None
            scopes[-1].nested_type.remove(message)
        for enum in [each for each in scopes[-1].enum_type if each.name == "NullValue"]:
            scopes[-1].enum_type.remove(enum)
    for depth in range(len(scopes), 0, -1):
        scope = scopes[depth - 1]
        package = FileDescriptorProto(name=f"{'.'.join(_PACKAGE[:depth])}.proto", package=".".join(_PACKAGE[:depth]))
        package.syntax, package.edition = file.syntax, file.edition
        package.options.CopyFrom(file.options)
        package.message_type.extend(scope.nested_type)
        package.enum_type.extend(scope.enum_type)
        package.extension.extend(scope.extension)
        package.dependency.extend([*names, *(each.name for each in packages)])
        packages.append(package)
        (scopes[depth - 2].nested_type if depth > 1 else rest.message_type).remove(scope)
    rest.dependency.extend([*names, *(each.name for each in packages)])
    return FileDescriptorSet(file=[*files, *packages, rest]).SerializeToString()


def _name_oneof(file: FileDescriptorProto) -> None:
    """Name the oneof of `google.protobuf.Value` as the runtime asks for it."""
    nested = file.message_type
    for part in (*_PACKAGE, "Value"):
        found = next((each for each in nested if each.name == part), None)
        if found is None:
            return
        nested = found.nested_type
        if part == "Value" and len(found.oneof_decl) == 1:
            found.oneof_decl[0].name = "kind"


@cache
def _standard_set() -> bytes:
    """The files of the well-known types, as the runtime brings them."""
    files = []
    for module in _MODULES:
        module.DESCRIPTOR.CopyToProto(file := FileDescriptorProto())
        files.append(file)
    return FileDescriptorSet(file=files).SerializeToString()


@cache
def _standard() -> dict[str, DescriptorProto]:
    """The canonical declaration of each well-known type, by name."""
    types = from_descriptor_set(_standard_set())
    found = {}
    for full_name in types.names():
        name = full_name.removeprefix("google.protobuf.")
        if "." in name:
            continue
        file = FileDescriptorSet.FromString(types.canonical(full_name)).file[0]
        scope = file.message_type[0].nested_type[0]
        found[name] = next(each for each in scope.nested_type if each.name == name)
    return found
