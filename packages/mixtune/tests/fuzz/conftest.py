"""The fuzz suites are short by default; ``make fuzz`` runs them for minutes with fresh random draws."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fuzz",
    derandomize=False,
    deadline=None,
    max_examples=int(os.environ.get("MIXTUNE_FUZZ_EXAMPLES", "100")),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
settings.register_profile("fuzz-short", parent=settings.get_profile("mixtune"), max_examples=3)
settings.load_profile("fuzz" if "MIXTUNE_FUZZ_EXAMPLES" in os.environ else "fuzz-short")
