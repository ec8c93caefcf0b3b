"""Defaults that stand at two edges are one number."""

from __future__ import annotations

import pytest

from protoslice import defaults
from protoslice.server.bodies.new_store import DEFAULT_MAX_CHUNK, DEFAULT_MIN_CHUNK
from protoslice.server.settings import Settings
from protoslice.serving import StoreOptions
from protoslice.sizes import parse_size
from protoslice.splitting import SplitPolicy
from protoslice.stores import IngestRequest
from protoslice.uploads import UploadOptions


def test_chunks_are_cut_alike_at_every_door() -> None:
    here = (defaults.MIN_CHUNK, defaults.MAX_CHUNK)
    assert (parse_size(DEFAULT_MIN_CHUNK), parse_size(DEFAULT_MAX_CHUNK)) == here
    assert (IngestRequest().min_chunk, IngestRequest().max_chunk) == here
    assert (SplitPolicy().min_chunk, SplitPolicy().max_chunk) == here


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("max_upload_bytes", "max_upload_bytes"),
        ("verify_reads", "verify_reads"),
        ("threads", "worker_threads"),
        ("open_stores", "open_stores"),
        ("open_stores_bytes", "open_stores_bytes"),
        ("space_watermark_bytes", "space_watermark_bytes"),
    ],
)
def test_stores_are_kept_alike_with_and_without_a_service(option: str, setting: str) -> None:
    assert getattr(StoreOptions(), option) == Settings.model_fields[setting].default


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("max_bytes", "max_upload_bytes"),
        ("max_open", "max_open_uploads"),
        ("begin_seconds", "upload_begin_seconds"),
        ("lifetime_seconds", "upload_lifetime_seconds"),
        ("part_bytes", "upload_checkpoint_bytes"),
    ],
)
def test_uploads_are_kept_alike_with_and_without_a_service(option: str, setting: str) -> None:
    assert getattr(UploadOptions(), option) == Settings.model_fields[setting].default
