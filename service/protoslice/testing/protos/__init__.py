"""Random message types, odd but valid bytes of them, and slow obvious answers to compare the engine's with.

Only the protobuf runtime is used here, nothing of what is tested.
"""

from protoslice.testing.protos.cases import Case, cases, make_case
from protoslice.testing.protos.chunks import merge_chunks
from protoslice.testing.protos.descriptors import descriptor_of
from protoslice.testing.protos.masks import Step, clear_large, masked, path_of, random_path
from protoslice.testing.protos.places import Place, canonical, places
from protoslice.testing.protos.schemas import ROOT, random_file
from protoslice.testing.protos.wire import is_subsequence, tokens, without_large
from protoslice.testing.protos.writer import Writer

__all__ = [
    "ROOT",
    "Case",
    "Place",
    "Step",
    "Writer",
    "canonical",
    "cases",
    "clear_large",
    "descriptor_of",
    "is_subsequence",
    "make_case",
    "masked",
    "merge_chunks",
    "path_of",
    "places",
    "random_file",
    "random_path",
    "tokens",
    "without_large",
]
