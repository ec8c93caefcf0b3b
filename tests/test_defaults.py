"""Defaults that a service and the library share are equal."""

from __future__ import annotations

from dataclasses import replace

from protoslice import defaults
from protoslice.server.bodies.new_store import DEFAULT_MAX_CHUNK, DEFAULT_MIN_CHUNK
from protoslice.server.services import store_options
from protoslice.server.settings import Settings
from protoslice.serving import StoreOptions
from protoslice.sizes import parse_size
from protoslice.splitting import SplitPolicy
from protoslice.stores import IngestRequest


def test_chunks_are_cut_alike_at_every_door() -> None:
    here = (defaults.MIN_CHUNK, defaults.MAX_CHUNK)
    assert (parse_size(DEFAULT_MIN_CHUNK), parse_size(DEFAULT_MAX_CHUNK)) == here
    assert (IngestRequest().min_chunk, IngestRequest().max_chunk) == here
    assert (SplitPolicy().min_chunk, SplitPolicy().max_chunk) == here


def test_stores_have_the_same_defaults_with_and_without_a_service() -> None:
    served, alone = store_options(Settings(storage="memory://")), StoreOptions()
    # Replicas, clients and registered objects are the concern of a service alone.
    uploads = replace(served.uploads, max_open_per_client=alone.uploads.max_open_per_client)
    served = replace(served, uploads=uploads, trust_seconds=alone.trust_seconds, register_options={})
    assert served == alone
