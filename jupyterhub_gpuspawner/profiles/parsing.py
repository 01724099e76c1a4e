"""The profiles of a configuration: dicts of the schema and wrapspawner's tuples and pairs, in any mixture.

Every fault is a ConfigError with the path of the field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.schema import dotted, validated
from jupyterhub_gpuspawner.profiles.sections import profile_class, refuse_left_out
from jupyterhub_gpuspawner.profiles.tuples import as_document

NO_TUPLE = "is not a profile: use a table with display_name, slurm, ... (or a tuple of wrapspawner's)"
Where = Callable[[Sequence[str | int]], str]


def parse_profile(value: object, where: Where, *, quoting: bool = True) -> Profile:
    """One profile from a dict of this schema, a wrapspawner tuple or a pair; raises ConfigError.

    ``where`` turns the path of a field in ``value`` into text for people. Without ``quoting`` the message contains no
    part of ``value``, except for what ``where`` returns.
    """
    if isinstance(value, Profile):
        return value
    return validated(profile_class(), as_fields(value, where, quoting=quoting), where, quoting=quoting)


def as_fields(value: object, where: Where, *, quoting: bool = True) -> object:
    """A tuple or pair as a dict of this schema; anything else as it is. Raises ConfigError."""
    if not isinstance(value, (tuple, list)):
        return value
    try:
        return as_document(value)
    except ValueError as error:
        raise ConfigError(str(error) if quoting else NO_TUPLE, where=where(())) from None


def parse_profiles(
    value: Sequence[object], *, name: str = "profiles", extensions: Collection[str] | None = None
) -> tuple[Profile, ...]:
    """Every profile of a list; raises ConfigError for the first fault, such as ``profiles[2].slurm.memory: …``.

    ``extensions``: those whose fields a profile may have; None: all that are installed.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise ConfigError("must be a list of profiles", where=name)
    by_slug: dict[str, Profile] = {}
    for position, item in enumerate(value):

        def where(path: Sequence[str | int], position: int = position) -> str:
            return dotted((name, position, *path))

        profile = parse_profile(item, where)
        refuse_left_out(profile, extensions, where)
        if profile.slug in by_slug:
            raise ConfigError(
                f"{profile.slug!r} is already the slug of an earlier profile.",
                where=where(("slug",)),
                hint="Give each profile a slug of its own.",
            )
        by_slug[profile.slug] = profile
    return tuple(by_slug.values())
