"""What all tests share: a generated case may take its time, for a slow machine is no fault of what it tries."""

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
