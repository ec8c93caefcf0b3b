"""The former import path, kept until 0.3. Import from `protoslice.formats` instead."""

from protoslice.tensors.dtypes import element_count as element_count
from protoslice.tensors.layout import checked as checked
from protoslice.tensors.layout import stored_size as stored_size
