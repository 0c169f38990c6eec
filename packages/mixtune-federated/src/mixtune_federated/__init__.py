"""Members share sums, never rows: study, messages, masks, policy.

A study is agreed on (:class:`Study`), members answer requests with files (:class:`Site`), and the focal member combines
the answers (:class:`Coordinator`) into the input of :class:`FederatedRegressor`. All
messages are files, so any way to transport files can be used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mixtune.choice import SummedSources
from mixtune_federated._audit import audit
from mixtune_federated._coordinator import MEMBERS, Combined, Coordinator
from mixtune_federated._keys import Card, Key, check_name, check_not_kept, key_path
from mixtune_federated._ledger import Ledger
from mixtune_federated._messages import Message, read_message
from mixtune_federated._policy import Policy, RefusedError
from mixtune_federated._site import Site
from mixtune_federated._study import FeatureSpec, FixedMethod, Limits, Privacy, Study
from mixtune_federated._tuned import remote_tasks

if TYPE_CHECKING:
    from mixtune_federated._estimator import FederatedRegressor, pooled_twin

#: The name in version 0.1.
Summed = SummedSources

__all__ = [
    "MEMBERS",
    "Card",
    "Combined",
    "Coordinator",
    "FeatureSpec",
    "FederatedRegressor",
    "FixedMethod",
    "Key",
    "Ledger",
    "Limits",
    "Message",
    "Policy",
    "Privacy",
    "RefusedError",
    "Site",
    "Study",
    "Summed",
    "audit",
    "check_name",
    "check_not_kept",
    "key_path",
    "pooled_twin",
    "read_message",
    "remote_tasks",
]


def __getattr__(name: str) -> Any:
    # The estimator imports scikit-learn, which members who only answer have no use for.
    if name not in ("FederatedRegressor", "pooled_twin"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("mixtune_federated._estimator"), name)
