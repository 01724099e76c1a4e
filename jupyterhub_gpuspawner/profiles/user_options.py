"""User options: the choices made in a form, a link or a REST request, in one flat format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.profiles.option import OPTION_LIMIT, UNLISTED, VALUE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    given: dict[str, str] = {}
    for name, values in formdata.items():
        filled = sorted({value for value in values if value})
        if len(filled) > 1:
            raise RequestError(f"{_shown(name)} is given twice.", field=_shown(name), hint="Give one value.")
        if filled and name != "_xsrf":
            given[name] = filled[0]
    if "profile" in formdata and "profile" not in given:
        raise RequestError("No profile is selected.", field="profile", hint="Choose one.")
    own = f"{_PREFIX}{given.get('profile', '')}--"
    options: dict[str, object] = {}
    for name, value in given.items():
        if not name.startswith(_PREFIX):
            options.setdefault(name, value)
        elif "profile" not in given:
            raise RequestError("Options were given without a profile.", field="profile", hint="Choose a profile.")
        elif name.startswith(own):
            options[name.removeprefix(own)] = value
    choice = parse_choice(options)
    return {**({"profile": choice.profile} if choice.profile else {}), **choice.options}
