"""The fields of a profile."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from jupyterhub_gpuspawner import units
from jupyterhub_gpuspawner.profiles import option
from jupyterhub_gpuspawner.profiles.profile import Allow
from jupyterhub_gpuspawner.profiles.resources import (
    Container,
    Environment,
    PlacementRules,
    ReservationRule,
    Resources,
)
from jupyterhub_gpuspawner.profiles.sections import option_class, option_fields, profile_class, profile_fields

from .wording import TEXT, code, field_docs, markdown, table, type_in_words


def _tables_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The tables of fields that a field's type contains, the outer before the inner."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _tables_in(field.annotation)
    for part in get_args(annotation):
        yield from _tables_in(part)


MODELS = (
    profile_class(),
    Resources,
    ReservationRule,
    Environment,
    Container,
    PlacementRules,
    Allow,
    option_class(),
    option.ListedChoice,
    option.UnlistedChoice,
    option.Range,
    *(
        table
        for _, field in (*profile_fields().values(), *option_fields().values())
        for table in _tables_in(field.type)
    ),
)


def page() -> str:
    """The page of profile fields."""
    parts = [
        "# Profile fields\n",
        "A profile is a dict in `c.GPUProfilesSpawner.profiles`, or a mapping in a YAML file in "
        "`c.GPUProfilesSpawner.profiles_dir`. A file contains one profile, a list of profiles, or `profiles:` with a "
        "list. YAML is read as version 1.2: `8:00:00`, `no` and `on` are text.\n",
        "A field that is not in these tables is refused, and the error names its path. Names are those of "
        "KubeSpawner's `profile_list` where the meaning is the same.\n",
        f"*Text* is {TEXT}. Instead of a list of texts, a single text is accepted.\n",
        f"*Memory*: {_first_line(units.parse_memory)}\n",
        f"*Time*: {_first_line(units.parse_walltime)}\n",
    ]
    for model in MODELS:
        parts += fields(model)
    parts += [
        "## What a user's choice may set\n",
        f"A text (`unlisted_choice`, `sets`): {_listed(option.SETTABLE)}. The text must be valid for the field.\n",
        f"A number (`range`, `sets`): {_listed(option.NUMBERS)}.\n",
        f"A value from a user has at most {option.VALUE_LIMIT} characters.\n",
    ]
    return "\n".join(parts)


def fields(model: type[BaseModel]) -> list[str]:
    """The section of one table of fields."""
    docs = field_docs(model)
    rows = [
        (
            code(field.alias or name),
            _field_type(field),
            _field_default(field, docs.get(name, "")),
            _meaning(field, docs.get(name, "")),
        )
        for name, field in model.model_fields.items()
    ]
    return [
        f"## {model.__name__}\n",
        f"{markdown(model.__doc__)}\n",
        table(("Field", "Type", "Default", "Meaning"), rows),
    ]


def _first_line(function: Callable[..., object]) -> str:
    return markdown(inspect.getdoc(function)).splitlines()[0]


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(code(name) for name in names)


def _field_type(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    for constraint in field.metadata:
        annotation = Annotated[annotation, constraint]
    return type_in_words(annotation)


def _meaning(field: FieldInfo, doc: str) -> str:
    """The field's description, or the first line of its model's docstring."""
    if not doc and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return markdown(field.annotation.__doc__).splitlines()[0]
    return markdown(doc)


def _field_default(field: FieldInfo, doc: str) -> str:
    if field.is_required():
        return "" if "default: " in doc else "required"
    value = field.default
    if value is PydanticUndefined:
        value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ((), {}, "") or isinstance(value, BaseModel):
        return ""
    return code(json.dumps(value))
