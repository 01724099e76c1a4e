"""More time in words: on a server's card, in an answer of REST, and why there is none.

``{time}`` stays in a sentence: the page puts the time there, in the reader's time zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.extension.bounds import Reason
from jupyterhub_gpuspawner.words import duration

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.hub.extension.bounds import MoreTime

_REFUSALS = {
    Reason.NOT_RUNNING: "Only a running server can be extended.",
    Reason.NO_LIMIT: "This server has no time limit.",
    Reason.USED: "This server cannot be extended again.",
    Reason.RESERVATION: "No more time: reservation {name} ends then.",
    Reason.PARTITION: "No more time: this is the longest time that partition {name} allows.",
    Reason.MAINTENANCE: "No more time: maintenance of the node begins then.",
    Reason.RESERVED: "No more time: the node is reserved for others from then on.",
    Reason.LEAVING: "No more time: the node is being taken out of service.",
    Reason.OTHERS_WAIT: "No more time: others are waiting for these resources.",
    Reason.UNKNOWN: "Whether there is more time is not known at the moment. Try again in a minute.",
}
_BOUNDS = {
    Reason.RESERVATION: "when reservation {name} ends",
    Reason.PARTITION: "which is the longest time that partition {name} allows",
    Reason.MAINTENANCE: "when maintenance of the node begins",
    Reason.RESERVED: "from when on the node is reserved for others",
    Reason.OTHERS_WAIT: "when others need these resources",
}


def refusal(reason: Reason, name: str = "") -> str:
    """Why a server is not extended; ``name`` is that of the reservation or partition."""
    return _REFUSALS[reason].format(name=name)


def more(found: MoreTime) -> str:
    """Such as ``1 h more, until {time}.``, and why it is not more; or why there is none."""
    if not found.seconds:
        return refusal(found.reason or Reason.UNKNOWN, found.name)
    bound = _BOUNDS.get(found.reason, "") if found.reason is not None else ""
    return f"{duration(found.seconds)} more, until {{time}}{', ' if bound else ''}{bound.format(name=found.name)}."


def uses(left: int) -> str:
    """How often a server can be extended."""
    return f"You can do this {'once' if left == 1 else f'{left} times'}."


def extended(seconds: int, by: str) -> str:
    """What a card says after an extension at ``{time}``; ``by`` is who made it, where that was not its user."""
    return f"Extended by {duration(seconds)} at {{time}}{f', by {by}' if by else ''}."
