"""The form: profiles as radio buttons, each with its options; complete without JavaScript."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.request import permitted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.hub.profiles_spawner import GPUProfilesSpawner
    from jupyterhub_gpuspawner.profile import Profile


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(loader=PackageLoader("jupyterhub_gpuspawner.hub"), autoescape=True)


def render_form(spawner: GPUProfilesSpawner) -> str:
    """The form's HTML for this user, every text in it escaped."""
    try:
        offered = spawner.offered()
    except ConfigError as error:
        spawner.log.error("No profiles can be offered: %s", error)  # noqa: TRY400 - its sentence is enough
        offered = ()
    now, groups = datetime.now().astimezone(), spawner.groups_of_user()
    mine = [profile for profile in offered if permitted(profile, spawner.user.name, groups, now) is None]
    return _environment().get_template("options_form.html").render(profiles=cards(mine, spawner.user_options))


def cards(profiles: Sequence[Profile], last: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the template shows of each profile; the last choice, where it is still offered, is chosen again."""
    chosen = next((p.slug for p in profiles if p.slug == last.get("profile")), None)
    chosen = chosen or next((p.slug for p in profiles if p.default), None) or next((p.slug for p in profiles), None)
    return [
        _card(profile, checked=profile.slug == chosen, last=last if profile.slug == chosen else {})
        for profile in profiles
    ]


def _card(profile: Profile, *, checked: bool, last: Mapping[str, Any]) -> dict[str, Any]:
    said = profile.as_override()
    fields = []
    for name, option in profile.profile_options.items():
        value = last.get(name, option.initial(said))
        fields.append(
            {
                "name": f"profile-option-{profile.slug}--{name}",
                "label": option.display_name or name,
                "description": option.description,
                "option": option,
                "value": value,
                "unlisted": value is not None and bool(option.choices) and str(value) not in option.choices,
            }
        )
    return {"profile": profile, "checked": checked, "fields": fields, "gets": what_you_get(profile)}


def what_you_get(profile: Profile) -> str:
    """GPUs, cores, memory and time in one line; empty for a profile that does not say."""
    asked = profile.slurm
    parts = []
    if asked.gpus:
        parts.append(f"{asked.gpus} x {asked.gpu_type or 'GPU'}")
    if asked.shards:
        parts.append(f"{asked.shards} GPU shards")
    if asked.nodes and asked.nodes > 1:
        parts.append(f"{asked.nodes} nodes")
    if asked.cpus:
        parts.append(f"{asked.cpus} cores")
    if asked.memory:
        parts.append(f"{asked.memory / 1024:g} GiB memory")
    if asked.time:
        parts.append("no time limit" if isinstance(asked.time, str) else duration(asked.time))
    return ", ".join(parts)


def duration(seconds: int) -> str:
    """``1 hour``, ``90 minutes``, ``2 days 12 hours``: the shortest exact words, to the minute."""
    minutes = max(1, round(seconds / 60))
    if minutes < 120 and minutes % 60:
        return _counted(minutes, "minute")
    days, rest = divmod(minutes, 24 * 60)
    hours, left = divmod(rest, 60)
    parts = ((days, "day"), (hours, "hour"), (left, "minute"))
    return " ".join(_counted(count, unit) for count, unit in parts if count)


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
