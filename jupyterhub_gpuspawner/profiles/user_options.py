"""User options: the choices made in a form, a link or a REST request, in one flat format, and their JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.profiles.option import (
    OPTION_LIMIT,
    UNLISTED,
    VALUE_LIMIT,
    ProfileOption,
    Range,
    UnlistedChoice,
)
from jupyterhub_gpuspawner.profiles.profile import Profile

NUMBER_LIMIT = 10**12
_SUFFIX = f"--{UNLISTED}"
_PREFIX = "profile-option-"


@dataclass(frozen=True)
class UserChoice:
    """A user's choice: the slug of a profile (empty: the default profile) and values of its options."""

    profile: str = ""
    options: Mapping[str, str | int | float] = field(default_factory=dict)


def parse_choice(user_options: Mapping[str, object]) -> UserChoice:
    """Read flat user options ``{"profile": slug, option: value}``; raises RequestError.

    ``option--unlisted-choice``, as sent by KubeSpawner's clients, is the option's value unless a listed one is given.
    """
    if len(user_options) > OPTION_LIMIT:
        raise RequestError(f"Too many options: {len(user_options)}.", hint=f"The limit is {OPTION_LIMIT}.")
    values = {_shown(name): _value(name, value) for name, value in user_options.items()}
    profile = values.pop("profile", "")
    if not isinstance(profile, str):
        raise RequestError("profile must be text: a profile's slug.", field="profile")
    for name in [name for name in values if name.endswith(_SUFFIX)]:
        text, option = values.pop(name), name.removesuffix(_SUFFIX)
        if text != "" and values.get(option, UNLISTED) == UNLISTED:
            values[option] = text
    for name, value in values.items():
        if value == UNLISTED:
            raise RequestError(f"{name}: 'Other' was chosen, but no value was entered.", field=name)
    return UserChoice(profile, values)


def _value(name: object, value: object) -> str | int | float:
    shown = _shown(name)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise RequestError(f"{shown} must be text or a number, not {type(value).__name__}.", field=shown)
    if not isinstance(value, str) and not abs(value) < NUMBER_LIMIT:
        raise RequestError(f"{shown} must be a number below {NUMBER_LIMIT}.", field=shown)
    if isinstance(value, str) and (len(value) > VALUE_LIMIT or not value.isprintable()):
        raise RequestError(f"{shown} must be printable text of at most {VALUE_LIMIT} characters.", field=shown)
    return value


def _shown(name: object) -> str:
    if not isinstance(name, str) or not name or len(name) > VALUE_LIMIT or not name.isprintable():
        raise RequestError(f"{str(name)[:40]!r} is not a valid option name.", field="user_options")
    return name


def choice_from_form(formdata: Mapping[str, list[str]]) -> dict[str, object]:
    """The flat user options of a form or an ``opt-`` link; raises RequestError.

    Accepts KubeSpawner's names (``profile``, ``profile-option-<slug>--<option>``, ``…--unlisted-choice``), where those
    of other profiles are ignored, and flat names. Empty fields count as not given.
    """
    form_values: dict[str, str] = {}
    for name, values in formdata.items():
        filled = sorted({value for value in values if value})
        if len(filled) > 1:
            raise RequestError(f"{_shown(name)} is given twice.", field=_shown(name), hint="Give one value.")
        if filled and name != "_xsrf":
            form_values[name] = filled[0]
    if "profile" in formdata and "profile" not in form_values:
        raise RequestError("No profile is selected.", field="profile", hint="Choose one.")
    own = f"{_PREFIX}{form_values.get('profile', '')}--"
    options: dict[str, object] = {}
    for name, value in form_values.items():
        if not name.startswith(_PREFIX):
            options.setdefault(name, value)
        elif "profile" not in form_values:
            raise RequestError("Options were given without a profile.", field="profile", hint="Choose a profile.")
        elif name.startswith(own):
            options[name.removeprefix(own)] = value
    choice = parse_choice(options)
    return {**({"profile": choice.profile} if choice.profile else {}), **choice.options}


# The user options of a profile as JSON Schema (draft 2020-12), for external forms and scripts.
#
# Choices and ranges are described exactly; for a free text the hub also checks the grammar of the field that it sets.
# Only the hub finds combinations that are not allowed, such as GPUs together with shards. The hub also accepts numbers
# as text, and a listed choice as a number, since forms send nothing else; the schema names the plain type.

DRAFT = "https://json-schema.org/draft/2020-12/schema"
CONTROL = r"[\u0000-\u001f\u007f]"
"""Characters that no text may contain; with a pattern ending in $, Python's validators would accept a newline."""
VALUES_AT_MOST = 1000
"""Maximum number of values listed one by one, where ``multipleOf`` cannot describe a range."""
_RE2S_OWN = re.compile(r"\(\?[^:]|\\[ACEQaxzpP0-9]|\$.|\[\[|\[[^\]]*(?:--|&&|\|\||~~)", re.DOTALL)
"""RE2 syntax that is different or missing in ECMA-262."""


def options_schema(profile: Profile) -> dict[str, Any]:
    """The JSON Schema of ``user_options`` for this profile."""
    settings = profile.as_override()
    properties: dict[str, Any] = {"profile": {"const": profile.slug, "title": profile.display_name}}
    for name, option in profile.profile_options.items():
        schema = _about(name, option)
        initial = option.initial(settings)
        if initial is not None:
            schema["default"] = initial
        properties[name] = {**schema, **_values(option)}
    return {
        "$schema": DRAFT,
        "type": "object",
        "properties": properties,
        "required": ["profile"],
        "additionalProperties": False,
    }


def _about(name: str, option: ProfileOption) -> dict[str, Any]:
    schema = {"title": option.display_name or name}
    if option.description:
        schema["description"] = option.description
    if option.range is not None and option.range.unit:
        schema["x-unit"] = option.range.unit
    return schema


def _values(option: ProfileOption) -> dict[str, Any]:
    if option.range is not None:
        return _number(option.range)
    listed: list[dict[str, Any]] = []
    for key, choice in option.choices.items():
        one: dict[str, Any] = {"const": key, "title": choice.display_name or key}
        if choice.description:
            one["description"] = choice.description
        listed.append(one)
    if option.free_text is not None:
        listed.append(_text(option.free_text))
    return listed[0] if len(listed) == 1 and option.free_text is not None else {"type": "string", "anyOf": listed}


def _number(span: Range) -> dict[str, Any]:
    low, high, step = (Decimal(str(value)) for value in (span.min, span.max, span.step))
    schema: dict[str, Any] = {"type": "number", "minimum": span.min, "maximum": span.max}
    whole = low == int(low) and step == int(step)
    if whole and low % step == 0:
        return {**schema, "type": "integer", "multipleOf": int(step)}
    count = int((high - low) / step) + 1
    if count <= VALUES_AT_MOST:
        values = [low + n * step for n in range(count)]
        schema["enum"] = [int(value) if value == int(value) else float(value) for value in values]
    return schema


def _text(choice: UnlistedChoice) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "maxLength": VALUE_LIMIT, "title": choice.display_name}
    schema["not"] = {"pattern": CONTROL}
    if choice.validation_message:
        schema["description"] = choice.validation_message
    if choice.validation_regex.isascii() and not _RE2S_OWN.search(choice.validation_regex):
        schema["pattern"] = f"^(?:{choice.validation_regex})$"
    return schema
