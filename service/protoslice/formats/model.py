"""The former import path for formats of other packages, kept until 0.3. Import from `protoslice.formats` instead."""

from protoslice.formats.messages import ProtoFormat as ProtoFormat
from protoslice.sources.ropes import Rope
from protoslice.tensors.listing import *  # noqa: F403
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import *  # noqa: F403
from protoslice.tensors.model import Deferred, Unreadable

Bytes = Rope
Listed = Tensors.of
Fault = Unreadable
Later = Deferred
