"""The former import path, kept until 0.3. Import from `protoslice.formats.messages` instead."""

from protoslice.formats.messages import *  # noqa: F403
from protoslice.formats.messages import TensorBuilder, resolve_location

TensorDraft = TensorBuilder
beside = resolve_location
