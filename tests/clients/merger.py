"""TensorFlow's Merger over files that are split by random rules.

The types are compiled to C++ and linked with TensorFlow's library. This needs a C++ compiler, and cargo for the protoc
version that TensorFlow was built with.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.support.environments import ROOT, python_of
from tests.support.protos import Case, descriptor_of
from tests.support.rules import ruled_cases, splits

from protoslice.schema import bundled
from protoslice.splitting import tensorflow_readable

TENSORFLOW = "tensorflow-cpu==2.21.0"
PROTOC = ("protoc-bin-vendored-linux-x86_64", "3.2.0")
"""The crate with protoc 31.1, and the crate's version."""
SETS = 20
METADATA: Any = bundled().message_class("tensorflow.proto_splitter.ChunkMetadata")


def run(folder: Path) -> str:
    """Split 50 messages by 20 sets of rules each, and let TensorFlow merge all of them."""
    cases = ruled_cases()
    merger = Merger(program(cases, folder))
    counts = {"equal": 0, "refused as told": 0, "wrong": 0}
    for number, case in enumerate(cases):
        for rules, split in splits(case, number, SETS):
            if len(list(split)) == 1:
                continue
            (folder / "split.cpb").write_bytes(split.cpb().read())
            said = merger.merge(f"t{number}.{case.root.DESCRIPTOR.name}", folder / "split", folder / "merged")
            told = tensorflow_readable(METADATA.FromString(split.metadata), descriptor_of(case.root))
            equal = said == "OK" and case.root.FromString((folder / "merged").read_bytes()) == case.message()
            counts["equal" if equal else "refused as told" if told else "wrong"] += 1
            if not equal and not told:
                print(f"message {number}: {said or 'the process ended'}: {rules}")
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    assert not counts["wrong"]
    return TENSORFLOW.replace("==", " ")


class Merger:
    """The program, which is started again each time that a check inside it ends it."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        quiet = subprocess.DEVNULL
        return subprocess.Popen([self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, text=True)

    def merge(self, type_name: str, prefix: Path, output: Path) -> str:
        """Return TensorFlow's status in words: `OK`, an error, or empty if the process ended."""
        output.unlink(missing_ok=True)
        if self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(type_name, prefix, output, file=self._process.stdin, flush=True)
        said = self._process.stdout.readline().strip()
        if not said:
            self._process.wait()
        return said


def program(cases: list[Case], folder: Path) -> Path:
    """Return the merger, compiled with a class for each case's type."""
    tensorflow = next(python_of(TENSORFLOW).parents[1].glob("lib/python*/site-packages/tensorflow"))
    files = FileDescriptorSet(file=[renamed(case.file, number) for number, case in enumerate(cases)])
    (folder / "types.binpb").write_bytes(files.SerializeToString())
    names = [file.name for file in files.file]
    subprocess.run([protoc(), "--descriptor_set_in=types.binpb", "--cpp_out=.", *names], cwd=folder, check=True)
    sources = [Path(__file__).parent / "merger.cc", *sorted(folder.glob("*.pb.cc"))]
    objects = []
    for source in sources:
        objects.append(folder / f"{source.name}.o")
        compiler = ["g++", "-w", "-std=c++17", "-O0", f"-I{folder}", f"-I{tensorflow / 'include'}"]
        subprocess.run([*compiler, "-c", source, "-o", objects[-1]], check=True)
    libraries = [f"-L{tensorflow}", f"-Wl,-rpath,{tensorflow}"]
    libraries += ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    subprocess.run(["g++", *objects, *libraries, "-o", folder / "merger"], check=True)
    return folder / "merger"


def renamed(file: FileDescriptorProto, number: int) -> FileDescriptorProto:
    """Return `file` with a unique name and package, since one program contains the types of all cases."""
    text = file.SerializeToString()
    copy = FileDescriptorProto.FromString(text)
    _rename(copy, f".{file.package}.", f".t{number}.")
    copy.name, copy.package = f"t{number}.proto", f"t{number}"
    return copy


def _rename(part: Any, old: str, new: str) -> None:
    for field, value in part.ListFields():
        if field.name in ("type_name", "extendee") and value.startswith(old):
            setattr(part, field.name, new + value.removeprefix(old))
        elif field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                _rename(each, old, new)


def protoc() -> Path:
    """Return protoc 31.1, which is taken from a crate."""
    crate, version = PROTOC
    folder = ROOT / ".make/protoc"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lib.rs").touch()
    manifest = '[package]\nname = "fetched"\nversion = "0.0.0"\n[lib]\npath = "lib.rs"\n[workspace]\n'
    (folder / "Cargo.toml").write_text(f'{manifest}[dependencies]\n{crate} = "={version}"\n')
    told = subprocess.run(["cargo", "metadata", "--format-version", "1"], cwd=folder, check=True, capture_output=True)
    found = next(package for package in json.loads(told.stdout)["packages"] if package["name"] == crate)
    return Path(found["manifest_path"]).parent / "bin/protoc"
