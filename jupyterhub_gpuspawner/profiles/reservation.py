"""The reservation that a job uses on a given day; for courses it may change daily."""

from __future__ import annotations

import re
from datetime import date

from pydantic import Field, ValidationInfo, field_validator, model_validator

from jupyterhub_gpuspawner.profiles.schema import WORD, BadValue, Frozen

STRFTIME_CODES = "aAbBdGjmuUVwWyY"
"""strftime(3) codes allowed in a reservation's pattern: those whose value contains no blank."""

PATTERN_LIMIT = 255
"""Maximum length of a pattern, in characters."""


class ReservationRule(Frozen):
    """The reservation that a job uses on a given day: one name, a pattern with the date, or a table by date."""

    pattern: str | None = None
    """A name, or a pattern with strftime(3) codes such as ``ml-hpc-%u`` (1 is Monday)."""
    dates: dict[date, str] = Field(default_factory=dict)
    """The name on each day."""
    default: str | None = None
    """The name on every other day; empty: no reservation; not given: no job on such a day."""

    @field_validator("pattern", "default")
    @classmethod
    def _renders(cls, value: str | None, field: ValidationInfo) -> str | None:
        if value or (value is not None and field.field_name == "pattern"):
            _rendered(value, date(2000, 1, 1))
        return value

    @field_validator("dates")
    @classmethod
    def _all_render(cls, value: dict[date, str]) -> dict[date, str]:
        for day, pattern in value.items():
            _rendered(pattern, day)
        return value

    @model_validator(mode="after")
    def _names_one(self) -> ReservationRule:
        if self.pattern is None and self.default is None and not self.dates:
            raise BadValue("must be a name, a pattern such as ml-hpc-%u, or a table such as {2024-05-31: ml-hpc-1}")
        return self

    def on(self, day: date) -> str | None:
        """The reservation's name on ``day``, None for no reservation; raises LookupError if the table has no entry."""
        if self.pattern is not None:
            return _rendered(self.pattern, day)
        if day in self.dates:
            return _rendered(self.dates[day], day)
        if self.default is None:
            raise LookupError(f"there is no reservation for {day.isoformat()}; days are {self.days()}")
        return _rendered(self.default, day) if self.default else None

    def days(self) -> str:
        """The days of the table as text."""
        return ", ".join(day.isoformat() for day in sorted(self.dates)) or "none"


def _rendered(pattern: str, day: date) -> str:
    if len(pattern) > PATTERN_LIMIT:
        raise BadValue(f"is longer than {PATTERN_LIMIT} characters", pattern)
    codes = re.findall("%(.?)", pattern)
    wrong = [code for code in codes if not code or code not in STRFTIME_CODES]
    if wrong:
        codes_told = f"%{', %'.join(STRFTIME_CODES)}"
        raise BadValue(
            f"contains a code that is not valid for a reservation: codes are {codes_told}",
            told=f"%{wrong[0]} in {pattern!r} is not a valid code for a reservation: codes are {codes_told}",
        )
    name = day.strftime(pattern)
    if re.fullmatch(rf"{WORD}(?:,{WORD})*", name, re.ASCII) is None:
        rule = "a reservation consists of letters, digits and . _ + -, without blanks"
        raise BadValue(rule, told=f"{pattern!r} gives {name!r}: {rule}")
    return name


def as_rule(value: object) -> object:
    """Normalise the input: a text is a pattern; a table has ISO dates and optionally ``default``."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return {"pattern": str(value)}
    if not isinstance(value, dict) or set(value) <= {"pattern", "dates"}:
        return value
    dates: dict[object, object] = {}
    result: dict[str, object] = {"dates": dates}
    for key, name in value.items():
        if key == "default":
            result["default"] = "" if name is None else str(name)
            continue
        day = key if isinstance(key, date) else _iso_day(key)
        dates[day] = str(name)
    return result


def _iso_day(key: object) -> date:
    try:
        return date.fromisoformat(str(key))
    except ValueError:
        raise BadValue("is not a valid date: use 2024-05-31, or default", key) from None
