"""Settings every test shares."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The machine may be busy: a slow example is not a failure, and the seed is printed with each one.
settings.register_profile(
    "house", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")
