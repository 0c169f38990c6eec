from hypothesis import HealthCheck, settings

# Deterministic, and no per-example deadline: shared machines have slow moments.
settings.register_profile(
    "mixtune", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("mixtune")
