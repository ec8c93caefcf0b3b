"""The profiles of hypothesis: `ci` by default, and `thorough` for a longer search."""

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("ci", max_examples=60, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("thorough", max_examples=2000, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
