"""Former import path, until 0.3: use `protoslice.formats`."""

from protoslice.tensors.dtypes import *  # noqa: F403
