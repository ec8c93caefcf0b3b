"""Random message types, unusual but valid bytes of them, and slow, simple answers to compare with.

This package uses the protobuf runtime, and nothing of the tested code.
"""

from tests.support.protos.chunks import merge_chunks
from tests.support.protos.masks import Place, Step, canonical, clear_large, masked, path_of, places, pruned, random_path
from tests.support.protos.schemas import ROOT, Case, cases, make_case, random_file
from tests.support.protos.wire import is_subsequence, tokens, without_large
from tests.support.protos.writer import Writer, descriptor_of

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
    "pruned",
    "random_file",
    "random_path",
    "tokens",
    "without_large",
]
