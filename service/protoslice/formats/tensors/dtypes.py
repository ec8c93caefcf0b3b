"""The former import path, kept until 0.3. Import from `protoslice.formats` instead."""

from protoslice.tensors.dtypes import *  # noqa: F403
