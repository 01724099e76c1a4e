"""The user options of a profile as JSON Schema (draft 2020-12), for external forms and scripts.

Choices and ranges are described exactly; for a free text the hub also checks the grammar of the field that it sets.
Only the hub finds combinations that are not allowed, such as GPUs together with shards. The hub also accepts numbers
as text, and a listed choice as a number, since forms send nothing else; the schema names the plain type.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from jupyterhub_gpuspawner.profiles.option import VALUE_LIMIT, ProfileOption, Range, UnlistedChoice
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import ALTERNATIVES

DRAFT = "https://json-schema.org/draft/2020-12/schema"
CONTROL = r"[\u0000-\u001f\u007f]"
"""Characters that no text may contain; with a pattern ending in $, Python's validators would accept a newline."""
VALUES_AT_MOST = 1000
"""Maximum number of values listed one by one, where ``multipleOf`` cannot describe a range."""
_RE2S_OWN = re.compile(r"\(\?[^:]|\\[ACEQaxzpP0-9]|\$.|\[\[|\[[^\]]*(?:--|&&|\|\||~~)", re.DOTALL)
"""RE2 syntax that is different or missing in ECMA-262."""


def options_schema(profile: Profile) -> dict[str, Any]:
    """The JSON Schema of ``user_options`` for this profile."""
    properties: dict[str, Any] = {"profile": {"const": profile.slug, "title": profile.display_name}}
    for name, option in profile.profile_options.items():
        schema = _about(name, option)
        initial = option.initial(profile.slurm)
        if initial is not None:
            schema["default"] = initial
        properties[name] = {**schema, **_values(option)}
    if profile.alternatives:
        one = "|".join(map(re.escape, profile.alternatives))
        properties[ALTERNATIVES] = {"type": "string", "title": "Also accepted", "pattern": f"^(?:(?:{one})(?:,|$))*$"}
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
