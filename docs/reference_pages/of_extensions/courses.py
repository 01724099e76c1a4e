"""The fields of a course's file, their JSON Schema, and the documents of courses."""

from __future__ import annotations

import json
from typing import Any

from docs.reference_pages.document import Document
from docs.reference_pages.profile import fields
from docs.reference_pages.wording import field_docs
from jupyterhub_gpuspawner.extensions.courses import api, report
from jupyterhub_gpuspawner.extensions.courses.book import NAMES_LIMIT
from jupyterhub_gpuspawner.extensions.courses.course import (
    GROUPS_LIMIT,
    INSTRUCTORS_LIMIT,
    PEOPLE_LIMIT,
    SESSIONS_LIMIT,
    ChosenProfile,
    Course,
    Instructors,
    Materials,
    Roster,
    SessionRule,
)
from jupyterhub_gpuspawner.profiles.resources import ReservationRule

NAME = "course.schema.json"
MODELS = (Course, Instructors, Roster, ChosenProfile, SessionRule, ReservationRule, Materials)
DOCUMENTS = (
    Document(
        "Courses document",
        api.VERSION,
        api.CoursesDocument,
        also=((api.CourseSession, "`session_now` and `session_next` of a course."),),
    ),
    Document("Course document", api.VERSION, api.CourseDocument),
    Document("Outcomes document", api.VERSION, api.OutcomesDocument),
    Document("Course check document", report.VERSION, report.CheckDocument),
)
_TEXT = {"type": "string"}
_PROFILE = {"$ref": "#/$defs/ChosenProfile"}
_SHORT: dict[str, list[dict[str, Any]]] = {
    "Instructors": [{"type": "array", "items": _TEXT}],
    "Roster": [{"type": "array", "items": _TEXT}],
    "ChosenProfile": [_TEXT],
    "ReservationRule": [{"type": ["string", "integer"]}, {"type": "object", "additionalProperties": _TEXT}],
}
"""Other ways to write a table, which its validator accepts."""


def page() -> str:
    """The page of a course's fields."""
    parts = [
        "# Course fields\n",
        "A course is one YAML file in `c.GPUProfilesSpawner.courses_dir`. Its name without ending is the course's "
        "slug: at most 56 lower-case letters, digits and hyphens. YAML is read as version 1.2: `9:00` and `no` are "
        "text.\n",
        "A field that is not in these tables is refused; the error names file, line and field. A roster has at most "
        f"{PEOPLE_LIMIT} people besides the members of its groups; a course has at most {SESSIONS_LIMIT} sessions, "
        f"{INSTRUCTORS_LIMIT} instructors by name and {GROUPS_LIMIT} groups of each kind. All courses of a hub have "
        f"together at most {NAMES_LIMIT} names; those that were there first stay.\n",
        f"[{NAME}]({NAME}) describes the file as JSON Schema, for editors: with the YAML language server, begin a file "
        f"with `# yaml-language-server: $schema=` and its address.\n",
        "*Duration* is a number with `s`, `min` or `h`, such as `10min`. Types are explained in "
        "[Profile fields](profile.md).\n",
    ]
    for model in MODELS:
        parts += fields(model)
    return "\n".join(parts)


def schema() -> str:
    """The JSON Schema (draft 2020-12) of a course's file, as text."""
    course_schema = Course.model_json_schema()
    for model in MODELS:
        properties = (course_schema if model is Course else course_schema["$defs"][model.__name__])["properties"]
        for name, doc in field_docs(model).items():
            field = model.model_fields[name].alias or name
            properties[field] = dict(sorted({**properties[field], "description": doc}.items()))
    for name, short in _SHORT.items():
        course_schema["$defs"][name] = {"anyOf": [*short, course_schema["$defs"][name]]}
    return (
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **_with_single(course_schema)}, indent=2)
        + "\n"
    )


def _with_single(part: Any) -> Any:
    """The same without defaults, which are parsed values; one text or profile may stand for a list of them."""
    if isinstance(part, list):
        return [_with_single(element) for element in part]
    if not isinstance(part, dict):
        return part
    items = part.get("items", {}) if part.get("type") == "array" else {}
    if items == _PROFILE or (items.get("type") == "string" and "format" not in items):
        about = {name: part[name] for name in ("title", "description") if name in part}
        many = {name: value for name, value in part.items() if name not in ("default", *about)}
        return {**about, "anyOf": [part["items"], many]}
    return {name: _with_single(value) for name, value in part.items() if name != "default" or isinstance(value, dict)}


PAGES = {"course.md": page, NAME: schema}
