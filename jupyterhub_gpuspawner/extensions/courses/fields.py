"""Which courses may use a profile, as the profile says it."""

from __future__ import annotations

from typing import Annotated

from jupyterhub_gpuspawner.profiles.schema import OneOrMany, Text
from jupyterhub_gpuspawner.profiles.sections import ProfileField

COURSES = ProfileField[tuple[Text, ...] | None](
    "courses",
    Annotated[tuple[Text, ...], OneOrMany] | None,
    "The courses that may use the profile, by the names of their files without ending; an empty list: none. Default: "
    "every course. ``allow`` applies to the people of a course as to everybody else.",
    None,
)
FIELDS = (COURSES,)
