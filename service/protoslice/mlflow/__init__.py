"""Artifacts of MLflow: folders of files that change, one file at a time, until a store is made of them."""

from protoslice.catalog.mlflow import ArtifactEntry, ArtifactFolder, NoArtifact
from protoslice.mlflow.artifacts import MOST_PARTS, MlflowArtifacts, UnknownPart, new_session
from protoslice.mlflow.auto_commit import AutoCommit

__all__ = [
    "MOST_PARTS",
    "ArtifactEntry",
    "ArtifactFolder",
    "AutoCommit",
    "MlflowArtifacts",
    "NoArtifact",
    "UnknownPart",
    "new_session",
]
