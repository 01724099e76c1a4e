"""The requests that a user can make with a profile: unchanged, each choice, and both ends of each range. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice, product
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.pages.choose.offer import WHERE, fields_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyterhub_gpuspawner.profiles.option import ProfileOption, Range
    from jupyterhub_gpuspawner.profiles.profile import Profile

    Values = Mapping[str, str | int | float]

VARIANTS = 200
"""Combinations of other options that are tried for one case, at most."""


@dataclass(frozen=True)
class Case:
    """One request: the options that differ from their defaults."""

    options: Values = field(default_factory=dict)
    option: str = ""
    """The option that is tried; empty for the unchanged profile."""
    path: tuple[str, ...] = ()
    """Its field in the profile, such as ``profile_options.gpus.range.max``."""


def cases_of(profile: Profile) -> Iterator[Case]:
    """The unchanged profile first; then the values of each option that are not its default."""
    yield Case()
    said = profile.as_override()
    for name, option in profile.profile_options.items():
        initial = option.initial(said)
        for part, value in _values(option):
            if value != initial:
                yield Case({name: value}, name, ("profile_options", name, *part))


def _values(option: ProfileOption) -> list[tuple[tuple[str, ...], str | int | float]]:
    if option.range is not None:
        ends = {option.range.min: "min", _last(option.range): "max"}
        return [(("range", end), value) for value, end in ends.items()]
    return [(("choices", key), key) for key in option.choices]


def _last(range_: Range) -> int | float:
    """The largest value of a range, which its maximum need not be: it goes in steps."""
    return range_.nearest(range_.max)


def variants(profile: Profile, case: Case) -> Iterator[Values]:
    """The case with each combination of other options that decide which nodes are considered; itself first."""
    others = {
        name: [value for _, value in _values(option)]
        for name, option in profile.profile_options.items()
        if name != case.option and fields_set(option) & WHERE
    }
    yield case.options
    for values in islice(product(*others.values()), VARIANTS if others else 0):
        yield {**dict(zip(others, values, strict=True)), **case.options}


def highest(range_: Range, runs: Callable[[int | float], bool]) -> int | float | None:
    """The largest value of a range that runs, if lower ones do; None if not even the lowest runs."""
    low, step = Decimal(str(range_.min)), Decimal(str(range_.step))

    def value(at: int) -> int | float:
        return range_.nearest(float(low + at * step))

    first, last = 0, int((Decimal(str(range_.max)) - low) / step)
    if not runs(value(first)):
        return None
    while first < last:
        middle = (first + last + 1) // 2
        first, last = (middle, last) if runs(value(middle)) else (first, middle - 1)
    return value(first)
