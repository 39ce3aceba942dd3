"""Hypothesis as all tests of this folder use it: the same cases in every run."""

from hypothesis import HealthCheck, settings

settings.register_profile("moet", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("moet")
