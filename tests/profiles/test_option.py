"""Options of a profile: choices, free texts, ranges."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jupyterhub_gpuspawner.profiles.option import Override, ProfileOption, put_over
from jupyterhub_gpuspawner.profiles.resources import Resources

CHOICES = {"choices": {"small": {"slurm": {"gpus": 1}}, "large": {"default": True, "slurm": {"gpus": 4}}, 8: {}}}
TEXT = {"unlisted_choice": {"validation_regex": "[1-4]", "validation_message": "one to four", "sets": "slurm.gpus"}}
NICE = {"unlisted_choice": {"validation_regex": "[0-9]+", "sets": "slurm.nice"}}
HOURS = {"range": {"min": 1, "max": 8, "step": 0.5, "sets": "slurm.time", "unit": "hours"}}
MEMORY = {"range": {"min": 4, "max": 64, "step": 4, "sets": "slurm.memory", "unit": "GiB"}}
CPUS = {"range": {"min": 1, "max": 16, "sets": "slurm.cpus", "default": 2}}


def _option(document: dict[str, Any]) -> ProfileOption:
    return ProfileOption.model_validate(document)


def _sets(over: Override) -> dict[str, Any]:
    return over.slurm.model_dump(exclude_unset=True)


@pytest.mark.parametrize(
    ("document", "value", "stored", "sets"),
    [
        (CHOICES, "small", "small", {"gpus": 1}),
        (CHOICES, 8, "8", {}),
        (TEXT, "3", "3", {"gpus": 3}),
        (TEXT, 3, "3", {"gpus": 3}),
        (NICE, "2147483645", "2147483645", {"nice": 2147483645}),
        ({**CHOICES, **TEXT}, "large", "large", {"gpus": 4}),
        ({**CHOICES, **TEXT}, "2", "2", {"gpus": 2}),
        (HOURS, "2.5", 2.5, {"time": 9000}),
        (HOURS, 8, 8, {"time": 28800}),
        (MEMORY, "16", 16, {"memory": 16384}),
        (CPUS, 16, 16, {"cpus": 16}),
        (
            {"range": {"min": 0.1, "max": 0.5, "step": 0.1, "sets": "slurm.time", "unit": "hours"}},
            0.3,
            0.3,
            {"time": 1080},
        ),
    ],
)
def test_a_value_within_what_is_allowed_sets_its_field(
    document: dict[str, Any], value: str | float, stored: str | float, sets: dict[str, object]
) -> None:
    """The value keeps its type, and the field is set in Slurm's unit."""
    typed_value, over = _option(document).choose(value)
    assert (typed_value, type(typed_value), _sets(over)) == (stored, type(stored), sets)


@pytest.mark.parametrize(
    ("document", "value", "message"),
    [
        (CHOICES, "huge", "it must be one of small, large, 8"),
        (TEXT, "5", "one to four"),
        (TEXT, "3\n", "one to four"),
        (TEXT, "33", "one to four"),
        (NICE, "2147483646", "must be a whole number from 0 to 2147483645"),
        (NICE, "9" * 30, "must be a whole number from 0 to 2147483645"),
        (
            {**TEXT, "unlisted_choice": {"validation_regex": ".*", "sets": "slurm.gpus"}},
            "x",
            "'x' must be a whole number",
        ),
        (HOURS, 9, r"it must be a number from 1 to 8 in steps of 0.5 \(hours\)"),
        (HOURS, 0.5, "it must be a number from 1 to 8"),
        (HOURS, 2.25, "it must be a number from 1 to 8 in steps of 0.5"),
        (CPUS, "x", "it must be a number from 1 to 16"),
        (CPUS, "nan", "it must be a number from 1 to 16"),
        (CPUS, "1e1", "it must be a number from 1 to 16"),
        (CPUS, float("inf"), "it must be a number from 1 to 16"),
        (CPUS, 10**400, "it must be a number from 1 to 16"),
        (CPUS, "٣", "it must be a number from 1 to 16"),
    ],
)
def test_a_value_outside_is_refused_with_the_bounds(document: dict[str, Any], value: str | float, message: str) -> None:
    """The error says what is allowed, in the unit shown on the form."""
    with pytest.raises(ValueError, match=message):
        _option(document).choose(value)


@pytest.mark.parametrize(
    ("document", "profile", "initial"),
    [
        (CHOICES, {}, "large"),
        ({"choices": {"a": {}, "b": {}}}, {}, "a"),
        (TEXT, {"gpus": 2}, None),
        (CPUS, {"cpus": 8}, 2),
        (HOURS, {"time": "4:00:00"}, 4),
        (HOURS, {"time": "UNLIMITED"}, 1),
        (HOURS, {}, 1),
        (MEMORY, {"memory": "16G"}, 16),
    ],
)
def test_what_holds_if_the_user_says_nothing(
    document: dict[str, Any], profile: dict[str, object], initial: str | float | None
) -> None:
    """The default choice or the first; a range's default, else the profile's value, else the minimum."""
    assert _option(document).initial(Resources.model_validate(profile)) == initial


@pytest.mark.parametrize(
    ("time_limit", "initial"), [("1:00:00", 2), ("2:59:00", 2), ("3:00:00", 3), ("3:45:00", 3), ("90:00:00", 8)]
)
def test_what_the_site_says_beyond_a_range_becomes_its_nearest_number(time_limit: str, initial: int) -> None:
    """So submitting an unchanged form is never refused."""
    option = _option({"range": {"min": 2, "max": 8, "sets": "slurm.time", "unit": "hours"}})
    number = option.initial(Resources(time=time_limit))

    assert number == initial
    assert option.choose(initial)[0] == initial


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "must have either a range, or choices"),
        ({**CHOICES, **HOURS}, "must have either a range, or choices"),
        ({"choices": {"a": {"default": True}, "b": {"default": True}}}, "choices a and b are both marked default"),
        ({"choices": {"unlisted-choice": {}}}, "a choice cannot be called unlisted-choice"),
        ({"unlisted_choice": {"validation_regex": "(", "sets": "slurm.gpus"}}, "is not a valid RE2 regular expression"),
        (
            {"unlisted_choice": {"validation_regex": ".", "sets": "slurm.extra"}},
            "'slurm.extra' cannot be set by a text",
        ),
        ({"unlisted_choice": {"validation_regex": ".", "sets": "environment.setup"}}, "cannot be set by a text"),
        ({"range": {"min": 1, "max": 2, "sets": "slurm.partition"}}, "'slurm.partition' cannot be set by a range"),
        ({"range": {"min": 4, "max": 2, "sets": "slurm.cpus"}}, "min 4 must not exceed max 2"),
        ({"range": {"min": 1, "max": 2, "step": 0, "sets": "slurm.cpus"}}, "step 0 must be above 0"),
        (
            {"range": {"min": 1, "max": 4, "step": 2, "sets": "slurm.cpus"}},
            "it must be a number from 1 to 4 in steps of 2",
        ),
        ({"range": {"min": 1, "max": 4, "default": 5, "sets": "slurm.cpus"}}, "it must be a number from 1 to 4"),
        ({"range": {"min": 1, "max": 4, "sets": "slurm.memory", "unit": "cores"}}, "must be K, M, G or T"),
        ({"range": {"min": 1, "max": 4, "sets": "slurm.time", "unit": "h"}}, "must be seconds, minutes, hours or days"),
        ({"range": {"min": 0.5, "max": 4.5, "sets": "slurm.gpus"}}, "'0.5' must be a whole number"),
        ({"range": {"min": 1, "max": 1e30, "sets": "slurm.memory"}}, "1e\\+30 must be a number of at most 12 digits"),
        ({"range": {"min": 1, "max": 4, "step": 1e-300, "sets": "slurm.cpus"}}, "1e-300 must be a number of at most"),
        ({"range": {"min": float("nan"), "max": 4, "sets": "slurm.cpus"}}, "nan must be a number of at most 12"),
        ({"range": {"min": 1, "max": float("inf"), "sets": "slurm.cpus"}}, "inf must be a number of at most 12"),
        ({"range": {"min": 1, "max": 10**5000, "sets": "slurm.cpus"}}, "a very large int must be a number of at most"),
        ({"range": {"min": 1, "max": True, "sets": "slurm.cpus"}}, "True must be a number of at most 12 digits"),
        (
            {"unlisted_choice": {"validation_regex": "(?=a)", "sets": "slurm.qos"}},
            "is not a valid RE2 regular expression",
        ),
        ({"unlisted_choice": {"validation_regex": "a" * 256, "sets": "slurm.qos"}}, "at most 255 characters"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_when_it_is_read(document: dict[str, Any], message: str) -> None:
    """Bounds, units and fields are checked at once, not at the first spawn."""
    with pytest.raises(ValidationError, match=message):
        _option(document)


def test_a_choice_adds_lists_merges_tables_and_replaces_the_rest() -> None:
    """A field that it sets to null is removed."""
    base = Override.model_validate(
        {
            "slurm": {"gpus": 1, "cpus": 4, "account": "a", "extra": ["--x"]},
            "environment": {"modules": ["CUDA"], "variables": {"A": "1", "B": "1"}},
        }
    )
    over = Override.model_validate(
        {
            "slurm": {"gpus": 2, "account": None, "extra": ["--y"]},
            "environment": {"modules": ["PyTorch"], "variables": {"B": "2"}},
            "command": ["lab"],
        }
    )
    assert put_over(base, over) == Override.model_validate(
        {
            "slurm": {"gpus": 2, "cpus": 4, "account": None, "extra": ["--x", "--y"]},
            "environment": {"modules": ["CUDA", "PyTorch"], "variables": {"A": "1", "B": "2"}},
            "placement": {},
            "command": ["lab"],
            "default_url": None,
        }
    )
