"""Former import path, until 0.3: use `protoslice.formats.messages`."""

from protoslice.formats.messages import *  # noqa: F403
from protoslice.formats.messages import TensorBuilder, resolve_location

TensorDraft = TensorBuilder
beside = resolve_location
