"""Everything that clients, the network, the engine and the operator can do, with the weight of each action."""

from . import connections, messages, network, resumption, service
from .table import Action

ACTIONS: dict[str, Action] = (
    connections.ACTIONS | messages.ACTIONS | network.ACTIONS | resumption.ACTIONS | service.ACTIONS
)
"""All actions by name, in the order from which a program's seed draws them."""
