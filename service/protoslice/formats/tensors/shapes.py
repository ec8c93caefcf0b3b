"""Former import path, until 0.3: use `protoslice.formats`."""

from protoslice.tensors.dtypes import element_count as element_count
from protoslice.tensors.layout import checked as checked
from protoslice.tensors.layout import stored_size as stored_size
