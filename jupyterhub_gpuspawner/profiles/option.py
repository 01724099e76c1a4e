"""What a user may change in a profile: listed choices, a text with a pattern, or a range, as in KubeSpawner.

An option turns the user's value into an :class:`Override`, or raises ValueError that says what is allowed.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from jupyterhub_gpuspawner.profiles.resources import NUMBER_FIELDS, Environment, PlacementRules, Resources
from jupyterhub_gpuspawner.profiles.schema import (
    BadValue,
    Checked,
    Frozen,
    Guarded,
    Part,
    Prose,
    Text,
    UrlPath,
    fault_text,
    matcher,
    merged,
)
from jupyterhub_gpuspawner.units import format_walltime

OPTION_LIMIT = 64
"""Maximum number of user options, and so of options of a profile."""
EXPRESSION_LIMIT = 255
"""Maximum length of a regular expression, in characters."""
VALUE_LIMIT = 255
"""Maximum length of a user's value, in characters."""
UNLISTED = "unlisted-choice"
"""What KubeSpawner's form sends for 'Other'; the text itself is sent in a separate field."""
SETTABLE = (
    *(f"slurm.{name}" for name in Resources.model_fields if name not in ("extra", "exclusive")),
    "environment.conda",
    "environment.venv",
    "environment.container",
    "environment.variables.NAME",
    "default_url",
)
"""Fields that a text may set; each has its own grammar."""
NUMBERS = tuple(f"slurm.{name}" for name in NUMBER_FIELDS)
"""Fields that a range may set."""
_MEMORY_UNITS = {"K": "K", "M": "M", "G": "G", "T": "T"}
_TIME_UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}


class Override(Frozen):
    """What a choice overrides in its profile."""

    slurm: Resources = Resources()
    environment: Environment = Environment()
    placement: PlacementRules = PlacementRules()
    command: Annotated[tuple[Text, ...] | None, Guarded("command")] = None
    default_url: UrlPath | None = None


def put_over(base: Part, over: Override) -> Part:
    """``base``, which has these fields, overridden by ``over``; :func:`~.resolve.resolved` finds their conflicts."""
    update: dict[str, Any] = {}
    for name in over.model_fields_set.intersection(Override.model_fields):
        old, new = getattr(base, name), getattr(over, name)
        update[name] = merged(old, new) if isinstance(new, Frozen) else old if new is None else new
    return base.model_copy(update=update)


class ListedChoice(Override):
    """One of the listed choices."""

    display_name: Prose | None = None
    """Default: its key."""
    description: Prose = ""
    default: bool = False


class UnlistedChoice(Frozen):
    """A text that the user enters."""

    enabled: bool = True
    display_name: Prose = "Other"
    validation_regex: str
    """An [RE2](https://github.com/google/re2/wiki/Syntax) regular expression that the whole text must match."""
    validation_message: Prose = ""
    """What is expected, for people."""
    sets: str
    """The field that the text sets, such as ``slurm.gpus``."""

    @field_validator("validation_regex")
    @classmethod
    def _compiles(cls, value: str) -> str:
        if len(value) > EXPRESSION_LIMIT or not value.isprintable():
            raise BadValue(f"must be printable, at most {EXPRESSION_LIMIT} characters", value)
        matcher(value)
        return value

    @field_validator("sets")
    @classmethod
    def _settable(cls, value: str) -> str:
        if value not in SETTABLE and not re.fullmatch(r"environment\.variables\.[A-Za-z_]\w*", value, re.ASCII):
            raise BadValue(f"cannot be set by a text; fields are {', '.join(SETTABLE)}", value)
        return value

    def override(self, text: str) -> Override:
        """What the text sets; raises ValueError that says what is expected."""
        if len(text) > VALUE_LIMIT or not text.isprintable() or not matcher(self.validation_regex).fullmatch(text):
            raise ValueError(self.validation_message or f"it must match {self.validation_regex}")
        return _set(self.sets, text)


def _bound(value: object) -> int | float:
    """A number that a form can send; users could not enter a larger one."""
    if not isinstance(value, bool) and isinstance(value, (int, float, str)):
        try:
            return number(value)
        except (ValueError, ArithmeticError):
            pass
    raise BadValue("must be a number of at most 12 digits, and 6 after the point", value)


Bound = Annotated[int | float, Checked(_bound, {"type": "number", "exclusiveMinimum": -1e12, "exclusiveMaximum": 1e12})]


class Range(Frozen):
    """A number between two bounds, each of at most 12 digits, and 6 after the point."""

    min: Bound
    max: Bound
    step: Bound = 1
    default: Bound | None = None
    """Default: the profile's own value, else the minimum."""
    sets: str
    """The field that the number sets, such as ``slurm.cpus``."""
    unit: Prose | None = None
    """For memory K, M, G or T (default: M); for time seconds, minutes, hours or days (default: minutes); otherwise a
    word for people."""

    @field_validator("sets")
    @classmethod
    def _settable(cls, value: str) -> str:
        if value not in NUMBERS:
            raise BadValue(f"cannot be set by a range; fields are {', '.join(NUMBERS)}", value)
        return value

    @model_validator(mode="after")
    def _makes_sense(self) -> Range:
        if self.min > self.max:
            raise BadValue("min must not exceed max", text=f"min {self.min} must not exceed max {self.max}")
        if self.step <= 0:
            raise BadValue("step must be above 0", text=f"step {self.step} must be above 0")
        if self.sets == "slurm.memory" and self._memory_letter() not in _MEMORY_UNITS:
            rule = "of memory must be K, M, G or T"
            raise BadValue(f"the unit {rule}", text=f"unit {self.unit!r} {rule}")
        if self.sets == "slurm.time" and (self.unit or "minutes") not in _TIME_UNITS:
            rule = "of time must be seconds, minutes, hours or days"
            raise BadValue(f"the unit {rule}", text=f"unit {self.unit!r} {rule}")
        for name in ("min", "max", "default"):
            value = getattr(self, name)
            if value is not None:
                self._try(name, value)
        return self

    def _try(self, name: str, value: float) -> None:
        if not self._has(value):
            rule = f"{name} is not in the range, which goes from min to max in steps"
            raise BadValue(rule, text=f"{name} {value}: it must be {self.bounds()}")
        try:
            self.override(value)
        except ValueError as error:
            raise BadValue(f"{name} is not a valid value for {self.sets}", text=str(error)) from None

    def _memory_letter(self) -> str:
        return re.sub("I?B$", "", (self.unit or "M").upper())

    def bounds(self) -> str:
        """The bounds in words."""
        step = "" if self.step == 1 else f" in steps of {self.step}"
        return f"a number from {self.min} to {self.max}{step}{f' ({self.unit})' if self.unit else ''}"

    def _has(self, value: float) -> bool:
        exact, low, step = Decimal(str(value)), Decimal(str(self.min)), Decimal(str(self.step))
        return low <= exact <= Decimal(str(self.max)) and (exact - low) % step == 0

    def nearest(self, value: float) -> int | float:
        """``value`` rounded down to a value of this range, limited to its minimum and maximum."""
        exact, low, step = Decimal(str(value)), Decimal(str(self.min)), Decimal(str(self.step))
        exact = max(low, min(exact, Decimal(str(self.max))))
        return _plain(exact - (exact - low) % step)

    def override(self, value: float) -> Override:
        """What the number sets; raises ValueError that states the bounds."""
        exact = Decimal(str(value))
        if not self._has(value):
            raise ValueError(f"it must be {self.bounds()}")
        if self.sets == "slurm.memory":
            return _set(self.sets, f"{exact:f}{self._memory_letter()}")
        if self.sets == "slurm.time":
            return _set(self.sets, format_walltime(int(exact * _TIME_UNITS[self.unit or "minutes"])))
        return _set(self.sets, int(exact) if exact == int(exact) else f"{exact:f}")

    def shown(self, value: object) -> int | float | None:
        """A profile's value (MiB, seconds, a count) in this range's unit; None if it is not a number."""
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        if self.sets == "slurm.memory":
            kib = Decimal(value * 1024) / 1024 ** "KMGT".index(self._memory_letter())
            return _plain(kib)
        if self.sets == "slurm.time":
            return _plain(Decimal(value) / _TIME_UNITS[self.unit or "minutes"])
        return value


def _plain(number: Decimal) -> int | float:
    return int(number) if number == int(number) else float(number)


def number(value: str | float) -> int | float:
    """The number in a form's text or a JSON value; raises ValueError."""
    if isinstance(value, str):
        text = value.strip()
    else:
        text = format(Decimal(repr(value)), "f") if abs(value) < 10**12 else ""
    if re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,6})?", text, re.ASCII) is None:
        raise ValueError("it must be a number")
    return _plain(Decimal(text))


def _set(path: str, value: Any) -> Override:
    """The override that sets one field; raises ValueError with the message of the field's grammar."""
    document: Any = value
    for step in reversed(path.split(".")):
        document = {step: document}
    try:
        return Override.model_validate(document)
    except ValidationError as error:
        raise ValueError(fault_text(error.errors()[0])) from None


def _text_keys(value: Any) -> Any:
    """YAML's key ``1:`` is the choice '1'."""
    if isinstance(value, dict):
        return {str(key) if isinstance(key, int) else key: choice for key, choice in value.items()}
    return value


class ProfileOption(Frozen):
    """One thing the user may change: listed choices, a text, both, or a range."""

    display_name: Prose | None = None
    """Default: its key."""
    description: Prose = ""
    choices: Annotated[dict[str, ListedChoice], BeforeValidator(_text_keys)] = Field(default_factory=dict)
    unlisted_choice: UnlistedChoice | None = None
    range: Range | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> ProfileOption:
        kinds = (self.range is not None) + bool(self.choices or self.unlisted_choice)
        if kinds > 1 or not (kinds or self.model_fields_set - ProfileOption.model_fields.keys()):
            raise BadValue("must have either a range, or choices or an unlisted_choice (or both)")
        defaults = [key for key, choice in self.choices.items() if choice.default]
        if len(defaults) > 1:
            rule = "are both marked default; mark one"
            raise BadValue(f"choices {rule}", text=f"choices {' and '.join(defaults)} {rule}")
        if UNLISTED in self.choices:
            raise BadValue(f"a choice cannot be called {UNLISTED}: forms use that word for a text that the user enters")
        return self

    @property
    def free_text(self) -> UnlistedChoice | None:
        """The free text, if it is enabled."""
        return self.unlisted_choice if self.unlisted_choice and self.unlisted_choice.enabled else None

    def setting_of(self, slurm: Resources) -> int | float | None:
        """The profile's own value of the field that a range sets, in the range's unit; None if it has none."""
        if self.range is None:
            return None
        return self.range.shown(getattr(slurm, self.range.sets.partition(".")[2]))

    def initial(self, slurm: Resources) -> str | int | float | None:
        """The value if the user changes nothing in a profile that requests ``slurm``.

        It is the default choice's key, or a number in the range's unit.
        It is always allowed: a value of the site or of another option outside the range becomes the nearest one within.
        """
        if self.range is not None:
            if self.range.default is not None:
                return self.range.default
            initial_value = self.setting_of(slurm)
            return self.range.min if initial_value is None else self.range.nearest(initial_value)
        return next((key for key, choice in self.choices.items() if choice.default), next(iter(self.choices), None))

    def choose(self, value: str | float) -> tuple[str | int | float, Override]:
        """The value in its own type, and what it overrides; raises ValueError that says what is allowed."""
        if self.range is not None:
            try:
                chosen = number(value)
            except ValueError:
                raise ValueError(f"it must be {self.range.bounds()}") from None
            return chosen, self.range.override(chosen)
        text = str(value)
        if text in self.choices:
            return text, self.choices[text]
        if self.free_text is not None:
            return text, self.free_text.override(text)
        listed = ", ".join(self.choices)
        raise ValueError(f"it must be one of {listed}" if listed else "its choices are each user's own")
