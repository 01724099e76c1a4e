"""The admin's bounds for courses: ``c.GPUCourses``."""

from __future__ import annotations

import re
from typing import Any

from traitlets import List, TraitError, Unicode, validate
from traitlets.config import Configurable

from jupyterhub_gpuspawner.hub.site.bounded import Count, Seconds


class GPUCourses(Configurable):
    """Who may be on the roster of a course, and how fast the servers of a course are started."""

    people = Unicode(
        "",
        config=True,
        help="""Regular expression that the whole user name of everybody on a roster must match, such as
        `train[0-9]{3}`. Empty: any name. Administrators of the hub are never on a roster.""",
    )
    groups: List[str] = List(
        Unicode(),
        config=True,
        help="""JupyterHub groups. If there are any, only their members may be on a roster.""",
    )
    every = Seconds(
        1.0,
        low=0.1,
        high=60.0,
        config=True,
        help="""Seconds between two starts where the hub starts the servers of a course, and between two stops. Each
        course has its own turns, and stops do not wait for starts.""",
    )
    at_once = Count(
        20,
        low=1,
        high=500,
        config=True,
        help="""How many starts for courses the hub has under way at the same time, and how many stops.""",
    )

    @validate("people")
    def _valid_people(self, proposal: Any) -> str:
        try:
            re.compile(proposal.value)
        except re.error as error:
            raise TraitError(f"GPUCourses.people: {proposal.value!r} is not a regular expression: {error}.") from None
        return str(proposal.value)
