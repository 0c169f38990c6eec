"""Members share sums, never rows: study, messages, masks, policy.

A study is agreed on (:class:`Study`), members answer requests with files (:class:`Site`), and the focal member combines
the answers (:class:`Coordinator`) into the input of :class:`mixtune.estimators.FederatedRegressor`. All
messages are files, so any way to transport files can be used.
"""

from mixtune.federated._coordinator import MEMBERS, Combined, Coordinator
from mixtune.federated._keys import Card, Key, key_path
from mixtune.federated._messages import Message, read_message
from mixtune.federated._policy import Ledger, Policy, RefusedError
from mixtune.federated._site import Site
from mixtune.federated._study import FeatureSpec, FixedMethod, Limits, Privacy, Study
from mixtune.federated._sums import rows_about
from mixtune.federated._tuned import Summed, remote_tasks

__all__ = ["MEMBERS", "Card", "Combined", "Coordinator", "FeatureSpec", "FixedMethod", "Key", "Ledger", "Limits"]
__all__ += ["Message", "Policy", "Privacy", "RefusedError", "Site", "Study", "Summed", "key_path", "read_message"]
__all__ += ["remote_tasks", "rows_about"]
