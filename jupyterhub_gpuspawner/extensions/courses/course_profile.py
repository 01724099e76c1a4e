"""A course as a choice on the form: the admin's profile, narrowed to the course's values and to its sessions. Pure.

Form, REST, start, ``course check`` and the start ahead all use the profile that is made here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, time
from math import inf
from urllib.parse import quote, urlencode, urlsplit

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.extensions.courses.course import ChosenProfile, Course, CourseDate
from jupyterhub_gpuspawner.extensions.courses.fields import COURSES
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.profiles.offered import Occasion, Offered, Times
from jupyterhub_gpuspawner.profiles.option import ProfileOption, put_over
from jupyterhub_gpuspawner.profiles.profile import Allow, Profile
from jupyterhub_gpuspawner.profiles.resolve import Defaults, JobRequest, moment_of, resolve, with_defaults
from jupyterhub_gpuspawner.profiles.resources import ReservationRule, Resources
from jupyterhub_gpuspawner.units import format_walltime
from jupyterhub_gpuspawner.words import memory

MARGIN = 60
"""Seconds by which a server ends before its session, at least; at most a minute more, since Slurm's time limits are
whole minutes. Until then the job may take to start and still end within a reservation that ends with the session."""
_NUMBERS = ("gpus", "cpus", "memory", "time")
"""Fields of Slurm's that a course may lower."""


PREFIX = "course-"
"""Before a course's slug in that of its profile."""


WITHOUT_RESERVATION = "Until then your server does not use the nodes that are reserved for the course."


def slug_of(course: str) -> str:
    """The slug of a course's profile, for the course's own slug."""
    return f"{PREFIX}{course}"


def group_name(course: str) -> str:
    """The JupyterHub group of a course's participants, for the course's slug."""
    return f"course-{course}"


def course_profile(
    file: CourseFile,
    profiles: Sequence[Profile],
    now: datetime,
    *,
    defaults: Defaults | None = None,
    session: CourseDate | None = None,
    trying: bool = False,
    rank: int = 0,
) -> Offered:
    """The profile of a course with a good version, at ``now``, which has a time zone.

    ``profiles`` are the admin's, ``defaults`` the site's for Slurm jobs, ``session`` is the one to be shown instead of
    that which is open or the next one. With ``trying`` the course is open between its sessions, too, so that its
    instructors can try it. Of several profiles of a session it is that of ``rank``, from 0. Raises ConfigError, with
    file, line and field of the course's file.
    """
    course = file.course
    assert course is not None
    session = session or next_session(course, now)
    chosen, at = _chosen(course, session, rank)
    base = _base(file, chosen, at, profiles)
    narrowed = _narrowed(file, chosen, at, base, defaults)
    opens = opens_at(course, session) if session is not None else None
    is_open = opens is not None and opens <= now
    only_sessions = course.outside_sessions == "no" and not trying
    slurm = narrowed.slurm
    if session is not None and (is_open or only_sessions):
        ends = course.outside_sessions == "no"
        slurm = _in_session(slurm, session, now if is_open else session.start, defaults, ends_with_session=ends)
    profile = narrowed.model_copy(
        update={
            "slug": slug_of(file.slug),
            "display_name": course.name,
            "description": course.message or "",  # the profile's may speak of options that a course does not have
            "default": False,
            "slurm": slurm,
            "default_url": course.materials.pull_path if course.materials is not None else narrowed.default_url,
            "profile_options": {},
            "alternatives": (),
            "rescue": False,
            "allow": _allow(course, base.allow, opens if only_sessions else None),
        }
    )
    reserved = session is not None and session.reservation
    return Offered(
        profile,
        occasion_of(file.slug, course),
        base.slug,
        rank,
        starts=session.start if session is not None else None,
        ends=session.end if session is not None else None,
        is_open=is_open,
        note=WITHOUT_RESERVATION if reserved and not is_open else "",
    )


def request_of(
    profile: Profile, user: str, groups: Collection[str], now: datetime, defaults: Defaults | None
) -> JobRequest:
    """What somebody requests who starts a course's profile; ``now`` has a time zone. Raises RequestError."""
    choice = {"profile": profile.slug}
    return resolve((profile,), choice, username=user, groups=groups, server_name="", now=now, defaults=defaults)


def occasion_of(slug: str, course: Course) -> Occasion:
    """The course as that for which its profile is offered."""
    times = (
        Times(opens_at(course, date).timestamp(), date.start.timestamp(), date.end.timestamp()) for date in course.dates
    )
    return Occasion(slug, course.name, group_name(slug), tuple(times))


def participants_link(slug: str, course: Course, hub: str) -> str:
    """The address that participants of a course open: the form with the course selected, then its materials.

    ``hub`` is the hub's address or path, such as ``https://hub.example.org/hub/``.
    """
    base = f"{hub.rstrip('/')}/"
    query = {"opt-profile": slug_of(slug)}
    if course.materials is not None:
        query["next"] = f"{urlsplit(base).path}user-redirect{course.materials.pull_path}"
    return f"{base}spawn?{urlencode(query, quote_via=quote, safe='')}"


def opens_at(course: Course, session: CourseDate) -> datetime:
    """When the servers of a session may be started: ``start_ahead`` before it begins, whatever the clocks do."""
    return datetime.fromtimestamp(session.start.timestamp() - (course.start_ahead or 0), session.start.tzinfo)


def next_session(course: Course, now: datetime) -> CourseDate | None:
    """The session that is under way, or else the next one; None after the last."""
    return next((date for date in course.dates if now < date.end), None)


def profiles_of(course: Course, session: CourseDate | None) -> tuple[ChosenProfile, ...]:
    """The profiles of a session in the order in which their seats are filled; after the last session, the course's."""
    return session.profiles if session is not None and session.profiles else course.profiles


def _chosen(course: Course, session: CourseDate | None, rank: int) -> tuple[ChosenProfile, tuple[str | int, ...]]:
    """One of the profiles of a session, and its path in the course's file."""
    at = session.profiles_at if session is not None and session.profiles else ("profile",)
    profiles = profiles_of(course, session)
    return profiles[rank], at if len(profiles) == 1 else (*at, rank)


def _base(file: CourseFile, chosen: ChosenProfile, path: tuple[str | int, ...], profiles: Sequence[Profile]) -> Profile:
    wanted = chosen.slug
    at = file.where((*path, "slug"))
    base = next((profile for profile in profiles if profile.slug == wanted), None)
    if base is None:
        raise ConfigError(f"there is no profile {wanted}", where=at)
    courses = COURSES.of(base)
    if courses is not None and file.slug not in courses:
        raise ConfigError(f"profile {wanted} is not available to this course", where=at)
    own_slug = slug_of(file.slug)
    if any(profile.slug == own_slug for profile in profiles):
        raise ConfigError(f"the hub has a profile {own_slug}, so a course cannot be called {file.slug}", where=at)
    return base


def _narrowed(
    file: CourseFile, chosen: ChosenProfile, at: tuple[str | int, ...], base: Profile, defaults: Defaults | None
) -> Profile:
    """The profile with the course's values for its options, and with lower numbers."""

    def refusal(message: str, *path: str) -> ConfigError:
        return ConfigError(message, where=file.where((*at, *path)))

    unknown = [name for name in chosen.options if name not in base.profile_options]
    if unknown:
        names = ", ".join(base.profile_options) or "none"
        message = f"profile {base.slug} has no such option; its options are {names}"
        raise refusal(message, "options", unknown[0])
    override = highest = base
    for name, option in base.profile_options.items():
        value = chosen.options.get(name, option.initial(base.slurm))
        if value is None:
            continue
        if name in chosen.options and _types_environment(option, value):
            rule = f"must be one of {', '.join(option.choices)}" if option.choices else "cannot be set"
            message = f"{rule}: a course file may not type what runs in its participants' servers"
            raise refusal(message, "options", name)
        try:
            over = option.choose(value)[1]
        except ValueError as error:
            raise refusal(str(error).rstrip("."), "options", name) from None
        free = option.range if name not in chosen.options else None
        override = put_over(override, over)
        highest = put_over(highest, over if free is None else free.override(free.nearest(free.max)))
    bounds = _with_defaults(highest.slurm, defaults)
    wanted = {name: value for name in _NUMBERS if (value := getattr(chosen, name)) is not None}
    for name, value in wanted.items():
        fault = _fault(name, value, getattr(bounds, name), base)
        if fault:
            raise refusal(fault, name)
    return override.model_copy(update={"slurm": override.slurm.model_copy(update=wanted)})


def _types_environment(option: ProfileOption, value: str | float) -> bool:
    """Whether this is a text, and none of the listed choices, that decides what runs in the server."""
    text = option.unlisted_choice
    return text is not None and text.sets.startswith("environment.") and str(value) not in option.choices


def _with_defaults(resources: Resources, defaults: Defaults | None) -> Resources:
    try:
        return resources if defaults is None else with_defaults(resources, defaults)
    except RequestError as error:
        raise ConfigError(str(error), where=error.field) from None


def _fault(name: str, value: int | str, bound: int | str | None, base: Profile) -> str:
    """Why a course may not set a number to ``value``; empty if it may."""
    if name == "gpus" and bound is None and base.slurm.gpu_type and not base.slurm.shards:
        bound = 1
    if bound is None:
        return f"profile {base.slug} leaves this to Slurm, so a course cannot set it"
    if _size(name, value) <= _size(name, bound):
        return ""
    shown = str(bound)
    if isinstance(bound, int) and name in ("memory", "time"):
        shown = memory(bound) if name == "memory" else format_walltime(bound)
    return f"must be at most {shown}, as profile {base.slug} allows"


def _size(name: str, value: int | str) -> float:
    """A number that compares: UNLIMITED time, and memory 0, which is all of a node's, exceed any other."""
    if isinstance(value, str) or (name == "memory" and value == 0):
        return inf
    return value


def _in_session(
    slurm: Resources, session: CourseDate, now: datetime, defaults: Defaults | None, *, ends_with_session: bool
) -> Resources:
    """What is requested in a session: its reservation, and no more time than is left of it.

    A server without a reservation may outlive the session only where ``ends_with_session`` is false. Without a time
    limit of the profile or the site, Slurm's own applies, which is unknown here.
    """
    update: dict[str, object] = {}
    if session.reservation is not None:
        update["reservation"] = ReservationRule(pattern=session.reservation)
    resources = _with_defaults(slurm.model_copy(update=update), defaults)
    if (ends_with_session or resources.reservation is not None) and resources.time is not None:
        left = (session.end - now).total_seconds() - MARGIN
        whole = max(60, int(left // 60) * 60)
        if _size("time", resources.time) > whole:
            update["time"] = whole
    return slurm.model_copy(update=update)


def _allow(course: Course, allow: Allow, opens: datetime | None) -> Allow:
    """The admin's rule, and in addition the times of the course; ``opens``: not before."""
    over = course.dates[-1].end
    until = over if allow.until is None or moment_of(allow.until, time.max) > over else allow.until
    from_ = allow.from_
    if opens is not None:
        from_ = max(opens, moment_of(from_)) if from_ is not None else opens
    return allow.model_copy(update={"from_": from_, "until": until})
