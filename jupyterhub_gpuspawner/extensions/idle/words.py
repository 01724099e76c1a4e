"""What is said of an idle server; ``{time}`` stays in a sentence, as in :mod:`~jupyterhub_gpuspawner.hub.words`."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.usage.node.summary import memory_used
from jupyterhub_gpuspawner.hub.words import uses
from jupyterhub_gpuspawner.words import duration, nearest

NOT_USED = "The GPUs of this server have not been used since {time}."
NOT_USED_CORES = "This server has not been used since {time}."
STOPS_AT = "It will be stopped at {time} unless they are used before then."
STOPS_AT_CORES = "It will be stopped at {time} unless it is used before then."
PLEASE_STOP = "Others may be waiting for them: please stop the server if you do not need it."
PLEASE_STOP_CORES = "Please stop it if you do not need it."
DEFAULT_SERVER = "Your server"
IS_IDLE = "{title} is idle"
NOT_IDLE = "This server is not idle: there is nothing to keep it from."
NO_KEEP_LEFT = "This server cannot be kept again. It is not stopped if you use it."


def what_follows(*, gpus: bool, stops: bool) -> str:
    """That it will be stopped, or that its user may stop it."""
    if stops:
        return STOPS_AT if gpus else STOPS_AT_CORES
    return PLEASE_STOP if gpus else PLEASE_STOP_CORES


def letter(title: str, *, stops: bool) -> str:
    """What is told of it to a user who looks at no page."""
    follows = "It will be stopped soon unless it is used" if stops else "Others may be waiting: please stop it"
    return f"{title} has not been used for a while. {follows}{' or kept' if stops else ' if you do not need it'}."


def keeps(by: int, left: int) -> str:
    """What *Keep* does."""
    if not left:
        return NO_KEEP_LEFT
    return f"{duration(by)} more. {uses(left)}"


def idle_in_words(*, gpus: int, idle_for: float, most: float, held_mib: int) -> str:
    """What was seen of an idle server, as a clause."""
    if not gpus:
        return f"it had not been used for {duration(idle_for)} (at most {most:.2f} cores)"
    whose = "its GPUs had" if gpus > 1 else "its GPU had"
    held = f", {memory_used(held_mib, None)} of GPU memory held" if held_mib >= 1024 else ""
    return f"{whose} not been used for {duration(idle_for)} (at most {nearest(most)} %{held})"
