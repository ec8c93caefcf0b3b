"""User-defined splitters, written as in TensorFlow's guide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from protoslice.errors import InvalidInput
from protoslice.merging import Merger, open_chunks
from protoslice.splitting import (
    ComposableSplitter,
    LargeMessageSplitter,
    RepeatedMessageSplitter,
    SplitBasedOnSize,
    SplitPolicy,
    tensorflow_readable,
)
from protoslice.splitting.paths import version_def

F = descriptor_pb2.FieldDescriptorProto


def _types() -> tuple[Any, Any]:
    """Return ModelConfig and Layer of the guide."""
    file = descriptor_pb2.FileDescriptorProto(name="guide.proto", package="guide", syntax="proto3")
    activation = file.enum_type.add(name="ActivationFunction")
    for number, name in enumerate(("RELU", "SIGMOID", "TANH")):
        activation.value.add(name=name, number=number)
    layer, model = file.message_type.add(name="Layer"), file.message_type.add(name="ModelConfig")
    for message, name, number, kind in (
        (layer, "name", 1, F.TYPE_STRING), (layer, "num_units", 2, F.TYPE_INT32),
        (model, "model_name", 1, F.TYPE_STRING), (model, "input_shape", 2, F.TYPE_INT32),
        (model, "output_units", 4, F.TYPE_INT32),
    ):  # fmt: skip
        message.field.add(name=name, number=number, label=F.LABEL_OPTIONAL, type=kind)
    enum = ".guide.ActivationFunction"
    layer.field.add(name="activation_function", number=3, label=F.LABEL_OPTIONAL, type=F.TYPE_ENUM, type_name=enum)
    model.field.add(name="output_activation", number=5, label=F.LABEL_OPTIONAL, type=F.TYPE_ENUM, type_name=enum)
    many = {"label": F.LABEL_REPEATED, "type": F.TYPE_MESSAGE}
    model.field.add(name="hidden_layers", number=3, type_name=".guide.Layer", **many)
    model.field.add(name="hyperparameters", number=6, type_name=".guide.ModelConfig.HyperparametersEntry", **many)
    entry = model.nested_type.add(name="HyperparametersEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=F.TYPE_STRING)
    entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL, type=F.TYPE_FLOAT)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    names = ("guide.ModelConfig", "guide.Layer")
    model_class, layer_class = (message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return model_class, layer_class


ModelConfig, Layer = _types()


def model() -> Any:
    config = ModelConfig(model_name="net", input_shape=784, output_units=10, output_activation=1)
    config.hyperparameters.update({"learning rate": 0.125, "momentum": 0.5})
    for i in range(5):
        config.hidden_layers.add(name=f"layer {i}", num_units=64 << i, activation_function=i % 3)
    return config


class ModelConfigSplitter(ComposableSplitter):
    def build_chunks(self) -> None:
        proto: Any = self._proto
        for key, value in proto.hyperparameters.items():
            self.add_chunk(bytes(str(value), "utf-8"), ["hyperparameters", key])
        for i, layer in enumerate(proto.hidden_layers):
            LayerSplitter(layer, parent_splitter=self, fields_in_parent=["hidden_layers", i]).build_chunks()


class LayerSplitter(ComposableSplitter):
    def build_chunks(self) -> None:
        self.add_chunk(self._proto, [])


class MovingSplitter(ModelConfigSplitter):
    """A splitter that removes from its copy the parts that it has put into chunks."""

    def build_chunks(self) -> None:
        super().build_chunks()
        proto: Any = self._proto
        proto.ClearField("hyperparameters")
        layers = [type(layer).FromString(layer.SerializeToString()) for layer in proto.hidden_layers]
        assert len(layers) == 5
        del proto.hidden_layers[:]


@pytest.mark.parametrize("splitter", [ModelConfigSplitter, MovingSplitter])
def test_the_worked_example_splits_and_merges_back(splitter: type[ComposableSplitter]) -> None:
    config, merged = model(), ModelConfig()
    chunks, chunked = splitter(config).split()
    assert config == model()
    assert chunks[1:3] in ([b"0.125", b"0.5"], [b"0.5", b"0.125"])
    assert chunks[3:] == list(model().hidden_layers)
    Merger.merge(chunks, chunked, merged)
    assert merged == model()


@pytest.mark.parametrize("splitter", [ModelConfigSplitter, MovingSplitter])
def test_the_worked_example_is_written_and_read_back(splitter: type[ComposableSplitter], tmp_path: Path) -> None:
    merged = ModelConfig()
    assert splitter(model()).write(str(tmp_path / "m")) == str(tmp_path / "m.cpb")
    Merger.read(tmp_path / "m", merged)
    assert merged == model()


def test_one_is_told_that_tensorflow_cannot_read_it(tmp_path: Path) -> None:
    with open_chunks(ModelConfigSplitter(model()).write(tmp_path / "m")) as (_, metadata):
        reasons = tensorflow_readable(metadata, ModelConfig.DESCRIPTOR)
    assert len(reasons) == 2
    assert 'hyperparameters["momentum"]: TensorFlow crashes on a map value that is not a message' in reasons
    assert metadata.chunks[1].type == metadata.chunks[1].BYTES
    assert metadata.version == version_def()


def test_the_message_is_the_initial_chunk_unless_one_says_otherwise() -> None:
    class Everything(ComposableSplitter):
        def build_chunks(self) -> None:
            for number, (field, value) in enumerate(self.source.ListFields()):
                part = ModelConfig()
                if field.name == "hidden_layers":
                    part.hidden_layers.extend(value)
                    self.add_chunk(part, [], index=number)

    only_layers = ModelConfig(hidden_layers=model().hidden_layers)
    chunks, chunked = Everything(only_layers, proto_as_initial_chunk=False).split()
    assert chunks == [only_layers]
    assert not chunked.HasField("chunk_index")
    merged = ModelConfig()
    Merger.merge(chunks, chunked, merged)
    assert merged == only_layers


def test_a_chunk_put_in_front_renumbers_the_others() -> None:
    class InFront(ComposableSplitter):
        def build_chunks(self) -> None:
            same = b"twice"
            self.add_chunk(same, ["model_name"])
            self.add_chunk(same, ["hidden_layers", 0, "name"])
            self.add_chunk(b"first", ["hidden_layers", 1, 1], 1)

    chunks, chunked = InFront(model()).split()
    assert chunks[1:] == [b"first", b"twice", b"twice"]
    assert [field.message.chunk_index for field in chunked.chunked_fields] == [2, 3, 1]


def test_children_are_not_asked_for_chunks() -> None:
    parent = ComposableSplitter(model())
    child = LayerSplitter(Layer(), parent_splitter=parent, fields_in_parent=["hidden_layers", 0])
    for ask in (child.split, lambda: child.write("x")):
        with pytest.raises(InvalidInput, match="split the parent instead"):
            ask()


class Emptying(SplitBasedOnSize):
    """A splitter that copies its message into a chunk and clears the message, as TensorFlow's own splitters do."""

    def build_chunks(self) -> int:
        chunk = type(self._proto)()
        chunk.MergeFrom(self._proto)
        self._proto.Clear()
        self.add_chunk(chunk, [])
        return self.proto_size


@pytest.mark.parametrize("elements", [[LargeMessageSplitter], [Emptying], []])
@pytest.mark.parametrize("copied", [False, True])
def test_blocks_for_repeated_fields(elements: list[type[SplitBasedOnSize]], copied: bool) -> None:
    class Blocks(ComposableSplitter):
        moved = 0

        def build_chunks(self) -> None:
            message = self._proto if copied else self.source
            block = RepeatedMessageSplitter(
                message, "hidden_layers", elements, parent_splitter=self, fields_in_parent=[]
            )
            self.moved = block.build_chunks()

    splitter = Blocks(model(), policy=SplitPolicy(13, 30))
    chunks, chunked = splitter.split()
    assert splitter.source == model()
    base: Any = chunks[0]
    assert len(base.hidden_layers) < 5 or elements
    assert splitter.moved > 0
    merged = ModelConfig()
    Merger.merge(chunks, chunked, merged)
    assert merged == model()
    assert len(chunks) >= 3
    assert tensorflow_readable(chunked, ModelConfig.DESCRIPTOR) == []


def test_a_block_cannot_move_what_is_not_the_parents() -> None:
    parent = ComposableSplitter(model(), policy=SplitPolicy(1, 1))
    stranger = Layer(name="stranger")
    child = LargeMessageSplitter(stranger, 10, parent_splitter=parent, fields_in_parent=["hidden_layers", 0])
    with pytest.raises(InvalidInput, match="not the parent's message at this path"):
        child.build_chunks()


def test_a_child_with_a_message_of_its_own_does_not_touch_it() -> None:
    class Renaming(ComposableSplitter):
        def build_chunks(self) -> None:
            proto: Any = self._proto
            proto.name = "renamed"
            self.add_chunk(proto, [])

    stranger, parent = Layer(name="stranger"), ComposableSplitter(model())
    Renaming(stranger, parent_splitter=parent, fields_in_parent=["hidden_layers", 0]).build_chunks()
    assert stranger.name == "stranger"
    assert parent.split()[0][1] == Layer(name="renamed")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (["no_such"], "has no field 'no_such'"), ([99], "has no field 99"), ([True], "field name or number"),
        (["hidden_layers", "x"], "not an element index"), (["hidden_layers", -1], "not an element index"),
        (["hidden_layers", 1 << 64], "not an element index"), (["hyperparameters", 1], "not a key"),
        (["model_name", "x"], "its parent has no fields"),
        (["hidden_layers", 0, "name", 0], "its parent has no fields"),
    ],
)  # fmt: skip
def test_places_that_do_not_exist(fields: list[Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        ComposableSplitter(model()).add_chunk(b"", fields)


def test_chunks_are_messages_or_bytes() -> None:
    with pytest.raises(InvalidInput, match="Invalid chunk str"):
        ComposableSplitter(model()).add_chunk("text", ["model_name"])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="Cannot insert a chunk at 7"):
        ComposableSplitter(model()).add_chunk(b"text", ["model_name"], 7)
    with pytest.raises(InvalidInput, match="not a repeated field"):
        RepeatedMessageSplitter(model(), "model_name", [])


def test_a_splitter_may_look_at_its_chunks_as_the_guide_does() -> None:
    class Returning(ModelConfigSplitter):
        def build_chunks(self) -> Any:
            assert (len(self._chunks), len(self._chunked_message.chunked_fields)) == (1, 0)
            super().build_chunks()
            child = LayerSplitter(Layer(), parent_splitter=self, fields_in_parent=["hidden_layers", 0])
            assert child._chunks == self._chunks
            assert child._chunked_message == self._chunked_message
            return self._chunks, self._chunked_message

    splitter = Returning(model())
    chunks, chunked = splitter.build_chunks()
    assert len(chunks) == 8
    again = ModelConfig()
    Merger.merge(chunks, chunked, again)
    assert again == model()
    assert Returning(model()).split() == (chunks, chunked)


@pytest.mark.parametrize(
    ("place", "binary", "text"),
    [
        (["input_shape"], (784).to_bytes(4, "little"), b"784"),
        (["hyperparameters", "momentum"], bytes.fromhex("0000003f"), b"0.5"),
        (["hidden_layers", 0, "num_units"], (64).to_bytes(8, "little"), b"64"),
        (["output_activation"], b"\1\0\0\0", b"TANH"),
        (["input_shape"], b"", b" -3"),
    ],
)
def test_binary_numbers_are_refused_with_what_is_wanted(place: list[Any], binary: bytes, text: bytes) -> None:
    splitter = ComposableSplitter(model())
    with pytest.raises(InvalidInput, match=r"be its value as text, such as b'0\.5'.*instead of tobytes\(\)") as caught:
        splitter.add_chunk(binary, place)
    assert caught.value.path is not None
    assert caught.value.path.startswith(str(place[0]))
    splitter.add_chunk(text, place)
    splitter.add_chunk(binary, ["model_name"])


def test_the_guides_two_slips_are_named() -> None:
    """The slips are binary numbers, which its Merger reads as text, and values of maps, at which its Merger stops."""
    with pytest.raises(InvalidInput, match="The chunk of a numeric field must be its value as text"):
        ComposableSplitter(model()).add_chunk(b"\0\0\0?", ["hyperparameters", "momentum"])
    splitter = ComposableSplitter(model())
    splitter.add_chunk(b"0.5", ["hyperparameters", "momentum"])
    (reason,) = tensorflow_readable(splitter._chunked_message, ModelConfig.DESCRIPTOR)
    assert "crashes on a map value that is not a message" in reason
