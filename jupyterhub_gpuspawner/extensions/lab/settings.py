"""What a site and its profiles say of the companion of JupyterLab."""

from __future__ import annotations

from typing import Any

from traitlets import Bool, HasTraits, List, TraitError

from jupyterhub_gpuspawner.profiles.sections import ProfileField

SAVES = (10, 2)
"""Minutes before a server's end at which JupyterLab saves all open documents."""
LAB = ProfileField(
    "lab",
    bool,
    "Whether JupyterLab shows the time left, notices and *More time* (``c.GPUSlurmSpawner.lab_companion``); Slurm jobs "
    "only.",
    default=True,
)
FIELDS = (LAB,)


class Minutes(List[int]):
    """At most ten whole numbers of minutes, each from 1 to 1440."""

    bounds = "at most 10 whole numbers from 1 to 1440"

    def validate(self, obj: Any, value: Any) -> list[int]:
        """Return the list; raises TraitError."""
        checked: list[Any] = super().validate(obj, value) or []
        valid = all(type(minutes) is int and 1 <= minutes <= 1440 for minutes in checked)
        if not valid or len(checked) > 10:
            raise TraitError(f"{self.name}: {value!r} must be {self.bounds}.")
        return checked


class LabSettings(HasTraits):
    """Whether jobs bring the companion, and when it shows a notice."""

    lab_companion = Bool(
        default_value=True,
        config=True,
        help="""Whether JupyterLab 4 shows the time left, the server's GPUs and their use, notices before the end,
        *More time* and the messages of instructors and administrators. The job brings it along; nothing is installed
        on nodes. A profile may have `lab: false`.""",
    )
    lab_notices = Minutes(
        [30, 10, 2], config=True, help="Minutes before a server's end at which JupyterLab shows a notice."
    )
