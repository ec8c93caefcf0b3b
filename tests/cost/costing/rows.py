"""The table: every route, the worst short requests known for it, and what they may cost."""

from __future__ import annotations

from typing import Final

from costing.intake import INTAKE
from costing.keeping import KEEPING
from costing.mlflow import MLFLOW
from costing.oci import OCI
from costing.operating import OPERATING
from costing.reading import READING
from costing.registries import REGISTRIES
from costing.resuming import RESUMING

ROWS: Final = (*OPERATING, *READING, *KEEPING, *INTAKE, *RESUMING, *REGISTRIES, *MLFLOW, *OCI)
"""In the order of the cheapest setting up: rows over one store stand together."""
