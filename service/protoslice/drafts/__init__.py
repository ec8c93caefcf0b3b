"""Drafts: folders of files that change, one file at a time, until a store is made of them."""

from protoslice.drafts.drafts import MOST_PARTS, Drafts, UnknownPart, new_session
from protoslice.drafts.quiet import QuietFolders
from protoslice.drafts.records import ArtifactFolder, DraftEntry, NoDraft

__all__ = [
    "MOST_PARTS",
    "ArtifactFolder",
    "DraftEntry",
    "Drafts",
    "NoDraft",
    "QuietFolders",
    "UnknownPart",
    "new_session",
]
