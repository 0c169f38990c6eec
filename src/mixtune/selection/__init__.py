"""Leave-one-out and the choices made with it."""

from mixtune.selection._ridge import RidgeChoice, loo_ridge

__all__ = ["RidgeChoice", "loo_ridge"]
