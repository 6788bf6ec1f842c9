"""How many examples a property is tried with: all in the thorough run, a third in the everyday one."""

from hypothesis import HealthCheck, settings

THOROUGH = 100


def examples(most, **others):
    """Settings for a property that takes so many examples."""
    share = 1 if settings().max_examples >= THOROUGH else 3
    return settings(max_examples=max(10, most // share), suppress_health_check=list(HealthCheck), **others)
