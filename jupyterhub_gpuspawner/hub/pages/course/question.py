"""What an instructor asks for on the page of a course, and the question before it is done. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.courses.actions import Result
from jupyterhub_gpuspawner.hub.courses.participants import State
from jupyterhub_gpuspawner.hub.pages.course.tiles import EXTEND, MESSAGE, START, STOP, concerns
from jupyterhub_gpuspawner.hub.text import course

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from jupyterhub_gpuspawner.hub.courses.actions import Outcome
    from jupyterhub_gpuspawner.hub.courses.participants import Participant, ServerKey

ACTIONS = (START, MESSAGE, EXTEND, STOP)
NAMED = 12
"""People named in a question, at most."""


@dataclass(frozen=True)
class Asked:
    """An action, and those whom it concerns as things are now."""

    action: str
    """``start``, ``message``, ``extend`` or ``stop``."""
    servers: tuple[ServerKey, ...]
    """The servers that it concerns."""
    everybody: bool = False
    """It is for everybody on the course, also those who are concerned only when it is confirmed."""
    lines: tuple[str, ...] = ()
    """What happens, and who is left out."""

    @property
    def heading(self) -> str:
        """The question."""
        return course.question(self.action, self._titles, self.everybody)

    @property
    def names(self) -> str:
        """The first of the people; empty for one, whom the heading names."""
        if len(self.servers) == 1:
            return ""
        more = len(self.servers) - NAMED
        return ", ".join((*self._titles[:NAMED], *([course.and_more(more)] if more > 0 else [])))

    @property
    def button(self) -> str:
        """What the button says that does it."""
        return course.confirm(self.action, len(self.servers))

    @property
    def _titles(self) -> tuple[str, ...]:
        return tuple(server.title for server in self.servers)


def asked(action: str, room: Sequence[Participant], chosen: Collection[str] | None) -> Asked:
    """The question before ``action``; ``chosen`` are the servers that were selected (as text), None for everybody.

    Participants with another server than the selected one are left out, except for a message.
    """
    users = {each.partition("/")[0] for each in chosen or ()}
    those = [
        each
        for each in room
        if chosen is None or {each.user, str(each.key)} & set(chosen) or (action == MESSAGE and each.user in users)
    ]
    moved = sum(each.user in users for each in room) - len(those) if chosen is not None else 0
    concerned = [each for each in those if concerns(action, each)]
    lines = []
    if not those and not moved:
        lines.append(course.NOBODY_SELECTED)
    elif not concerned:
        lines.append(course.NOBODY_CONCERNED)
    else:
        if action == STOP:
            lines += _of_stop(concerned)
        if chosen is not None and len(those) > len(concerned):
            lines.append(course.left_out(action, len(those) - len(concerned)))
    if moved:
        lines.append(course.other_server(moved))
    return Asked(action, tuple(each.key for each in concerned), chosen is None, tuple(lines))


def told(action: str, by: str, outcomes: Sequence[Outcome]) -> list[str]:
    """What the page says afterwards: for how many it was done, and for whom not and why."""
    good = sum(each.result is Result.DONE for each in outcomes)
    refused = [each.sentence for each in outcomes if each.result is Result.REFUSED]
    lines = [course.refused(action, len(refused), list(dict.fromkeys(refused)))] if refused else []
    return [course.done(action, by, good), *lines] if good or not refused else lines


def _of_stop(concerned: Sequence[Participant]) -> list[str]:
    running = [each for each in concerned if each.state is State.RUNNING]
    others = len(concerned) - len(running)
    jupyter = not any(each.server.app for each in running)
    return [
        *([course.stops_running(len(running), jupyter=jupyter)] if running else []),
        *([course.stops_others(others)] if others else []),
    ]
