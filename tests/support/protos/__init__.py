"""Random message types, odd but valid bytes of them, and slow, obvious answers to compare with.

Only the protobuf runtime is used here, nothing of what is tested.
"""

from tests.support.protos.cases import Case, cases, make_case
from tests.support.protos.chunks import merge_chunks
from tests.support.protos.descriptors import descriptor_of
from tests.support.protos.masks import Step, clear_large, masked, path_of, pruned, random_path
from tests.support.protos.places import Place, canonical, places
from tests.support.protos.schemas import ROOT, random_file
from tests.support.protos.wire import is_subsequence, tokens, without_large
from tests.support.protos.writer import Writer

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
