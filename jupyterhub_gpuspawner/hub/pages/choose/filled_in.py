"""The form's initial values: from a link, from a request that was refused, from the last start, or the defaults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster.availability import Chance
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.text import choose
from jupyterhub_gpuspawner.profiles.option import UNLISTED
from jupyterhub_gpuspawner.profiles.user_options import choice_from_form

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Check = Callable[[Mapping[str, object]], object]
    """Raises RequestError for user options that are not allowed."""


@dataclass(frozen=True)
class FilledIn:
    """The choice that the form shows, valid or not."""

    profile: str = ""
    """A slug; empty: the default profile."""
    values: Mapping[str, object] = field(default_factory=dict)
    """By the option's name, as they were given."""
    fault: str = ""
    """The error, in a sentence."""
    field: str = ""
    """Where it is: an option's name, ``profile``, or a field such as ``slurm.gpus``; empty: nowhere in the form."""
    chance: Chance = Chance.NEVER
    """What a fault leaves of the choice: UNKNOWN where Slurm was only silent."""
    note: str = ""
    """What the user should know about where these values come from."""

    @property
    def fault_at_value(self) -> bool:
        """The fault is a value that is not allowed, so that there is no job to describe."""
        return bool(self.fault) and bool(self.field) and not self.field.startswith("slurm.")


def as_given(fields: Mapping[str, Sequence[str]]) -> FilledIn:
    """The fields of a form or a link, unchecked."""
    given = {name: next(filter(None, values), "") for name, values in fields.items() if values and name != "_xsrf"}
    slug = given.pop("profile", "")
    prefix = f"profile-option-{slug}--"
    values = {name.removeprefix(prefix): value for name, value in given.items() if _is_own(name, prefix)}
    for name in [name for name in values if name.endswith(f"--{UNLISTED}")]:
        text, option = values.pop(name), name.removesuffix(f"--{UNLISTED}")
        if values.get(option, UNLISTED) == UNLISTED:
            values[option] = text
    return FilledIn(slug, values)


def _is_own(name: str, prefix: str) -> bool:
    return name.startswith(prefix) or not name.startswith("profile-option-")


def of_a_link(fields: Mapping[str, Sequence[str]], check: Check) -> FilledIn:
    """A link's choice, with the error where it is not allowed."""
    found = as_given(fields)
    try:
        check(choice_from_form({name: list(values) for name, values in fields.items()}))
    except RequestError as error:
        return with_fault(found, error)
    return replace(found, note=choose.FROM_A_LINK)


def of_a_form(fields: Mapping[str, Sequence[str]], refusal: BaseException | None) -> FilledIn:
    """The values that were sent with a start that was refused, with the reason."""
    found = as_given(fields)
    if refusal is None:
        try:
            choice_from_form({name: list(values) for name, values in fields.items()})
        except RequestError as error:
            return with_fault(found, error)
        return found
    return with_fault(found, refusal)


def with_fault(filled_in: FilledIn, error: BaseException) -> FilledIn:
    """The same with the message of ``error``, where it or its cause is one of our errors."""
    ours = error if isinstance(error, GPUSpawnerError) else error.__cause__
    if not isinstance(ours, GPUSpawnerError):
        return filled_in
    chance = Chance.UNKNOWN if isinstance(ours, SlurmUnavailable) else Chance.NEVER
    return replace(filled_in, fault=ours.told, field=str(getattr(ours, "field", "")), chance=chance)


def of_the_last_time(stored: Mapping[str, object], check: Check) -> FilledIn:
    """The last choice, without the parts that are no longer allowed; a note says which."""
    options, note = dict(stored), ""
    while options:
        try:
            check(options)
        except RequestError as error:
            note = note or choose.no_longer(str(error))
            if error.field == "profile" or error.field not in options:
                return FilledIn(note=note)
            del options[error.field]
        else:
            break
    values = {name: value for name, value in options.items() if name != "profile"}
    return FilledIn(str(options.get("profile", "")), values, note=note)
