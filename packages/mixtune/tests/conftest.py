import pytest
from hypothesis import HealthCheck, settings

from extras import skip_if_missing

# Deterministic, and no per-example deadline: shared machines have slow moments.
settings.register_profile(
    "mixtune", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("mixtune")


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item):
    skip_if_missing(getattr(item, "callspec", None) and item.callspec.params)
