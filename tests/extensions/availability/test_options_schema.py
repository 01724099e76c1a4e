"""The JSON Schema of user options accepts what the hub accepts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.extensions.availability.options_schema import CONTROL, DRAFT, options_schema
from jupyterhub_gpuspawner.profiles.files import EVERYTHING, ProfileFolder
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import resolve
from tests.standins.hostile_profiles import whole_profiles

COURSE = parse_profiles(
    [
        {
            "display_name": "Deep learning",
            "slug": "dl",
            "slurm": {"gpus": 2, "memory": "4G"},
            "profile_options": {
                "gpus": {"display_name": "GPUs", "range": {"min": 0, "max": 8, "step": 2, "sets": "slurm.gpus"}},
                "hours": {
                    "description": "How long it runs",
                    "range": {"min": 0.5, "max": 8, "step": 0.25, "unit": "hours", "sets": "slurm.time"},
                },
                "odd": {"range": {"min": 1, "max": 9, "step": 2, "sets": "slurm.cpus"}},
                "kind": {
                    "choices": {
                        "a100": {"display_name": "A100, 40 GB", "slurm": {"gpu_type": "a100"}, "default": True},
                        "1": {"description": "a slow one"},
                    }
                },
                "account": {
                    "choices": {"ml": {}},
                    "unlisted_choice": {
                        "validation_regex": "p[0-9]{3}",
                        "validation_message": "a project such as p123",
                        "sets": "slurm.account",
                    },
                },
                "image": {
                    "unlisted_choice": {"validation_regex": r"(?P<name>\w+)\.sif", "sets": "environment.container"}
                },
            },
        }
    ]
)[0]
SCHEMA = options_schema(COURSE)
VALID = Draft202012Validator(SCHEMA)


def hub_accepts(options: dict[str, Any], profile: Profile = COURSE) -> bool:
    """Whether the hub accepts these options."""
    try:
        resolve((profile,), options, username="alice", groups=(), server_name="", now=datetime(2026, 3, 2).astimezone())
    except RequestError:
        return False
    return True


def test_schema_in_full() -> None:
    """Names, defaults, bounds, steps as multipleOf or as a list of values, texts with their pattern."""
    Draft202012Validator.check_schema(SCHEMA)
    assert {
        "$schema": DRAFT,
        "type": "object",
        "properties": {
            "profile": {"const": "dl", "title": "Deep learning"},
            "gpus": {"title": "GPUs", "default": 2, "type": "integer", "minimum": 0, "maximum": 8, "multipleOf": 2},
            "hours": {
                "title": "hours",
                "description": "How long it runs",
                "x-unit": "hours",
                "default": 0.5,
                "type": "number",
                "minimum": 0.5,
                "maximum": 8,
                "enum": [int(n / 4) if n % 4 == 0 else n / 4 for n in range(2, 33)],
            },
            "odd": {
                "title": "odd",
                "default": 1,
                "type": "number",
                "minimum": 1,
                "maximum": 9,
                "enum": [1, 3, 5, 7, 9],
            },
            "kind": {
                "title": "kind",
                "default": "a100",
                "type": "string",
                "anyOf": [
                    {"const": "a100", "title": "A100, 40 GB"},
                    {"const": "1", "title": "1", "description": "a slow one"},
                ],
            },
            "account": {
                "title": "account",
                "default": "ml",
                "type": "string",
                "anyOf": [
                    {"const": "ml", "title": "ml"},
                    {
                        "type": "string",
                        "maxLength": 255,
                        "not": {"pattern": CONTROL},
                        "title": "Other",
                        "description": "a project such as p123",
                        "pattern": "^(?:p[0-9]{3})$",
                    },
                ],
            },
            "image": {"title": "Other", "type": "string", "maxLength": 255, "not": {"pattern": CONTROL}},
        },
        "required": ["profile"],
        "additionalProperties": False,
    } == SCHEMA


numbers = st.integers(-3, 12) | st.sampled_from([0.25, 0.5, 0.75, 1.5, 2.0, 7.75, 8.25, 0.1]) | st.floats(-1, 10)
texts = st.sampled_from(["a100", "1", "ml", "p123", "p12", "p1234", "A100", "", "x.sif", "a b.sif", "p123\n"])
options = st.fixed_dictionaries(
    {"profile": st.just("dl")},
    optional={"gpus": numbers, "hours": numbers, "odd": numbers, "kind": texts, "account": texts},
)


@settings(deadline=None, max_examples=400)
@given(options)
def test_schema_and_hub_agree_on_choices_and_ranges(user_options: dict[str, Any]) -> None:
    """For values of the plain types: the schema accepts exactly what the hub accepts."""
    assert VALID.is_valid(user_options) is hub_accepts(user_options)


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(["profile", "gpus", "kind", "image", "other"]),
        st.sampled_from(["dl", "x.sif", "a100"]) | st.integers(0, 3) | st.booleans() | st.none() | st.lists(st.just(1)),
    )
)
def test_what_the_schema_takes_is_never_of_a_wrong_kind(user_options: dict[str, Any]) -> None:
    """Unknown options, lists, booleans and other profiles are refused by both."""
    if VALID.is_valid(user_options):
        assert hub_accepts(user_options) or "image" in user_options
    elif {"profile": "dl", **user_options} == user_options and not any(
        isinstance(value, int) for value in user_options.values()
    ):
        assert not hub_accepts(user_options)


@pytest.mark.parametrize(
    ("expression", "pattern"),
    [
        ("[a-z]+[0-9]{2}", "^(?:[a-z]+[0-9]{2})$"),
        (r"\d+", r"^(?:\d+)$"),
        ("a|b", "^(?:a|b)$"),
        ("(?i)abc", None),
        (r"\Aabc\z", None),
        ("(?P<x>a)", None),
        (r"\pL+", None),
        ("[[:alpha:]]+", None),
    ],
)
def test_pattern_is_given_where_other_languages_read_it_alike(expression: str, pattern: str | None) -> None:
    """JSON Schema uses ECMA-262; where RE2 differs, only the hub checks the expression."""
    profile = parse_profiles(
        [
            {
                "display_name": "x",
                "profile_options": {
                    "t": {"unlisted_choice": {"validation_regex": expression, "sets": "slurm.account"}}
                },
            }
        ]
    )[0]
    assert options_schema(profile)["properties"]["t"].get("pattern") == pattern


def test_profile_without_options_takes_its_name_alone() -> None:
    """No other option is allowed."""
    schema = options_schema(parse_profiles([{"display_name": "Plain"}])[0])
    assert Draft202012Validator(schema).is_valid({"profile": "plain"})
    assert not Draft202012Validator(schema).is_valid({"profile": "plain", "gpus": 1})
    assert not Draft202012Validator(schema).is_valid({})


@settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(whole_profiles)
def test_any_profile_that_is_offered_has_a_schema(tmp_path: Path, text: str) -> None:
    """Whatever its author wrote."""
    (tmp_path / "p.yaml").write_text(text)
    for profile in ProfileFolder(tmp_path, EVERYTHING).read().profiles:
        Draft202012Validator.check_schema(options_schema(profile))
