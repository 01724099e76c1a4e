"""Forms, links and REST bodies give the same flat options."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.profiles.resolve import UserChoice, choice_from_form, parse_choice


@pytest.mark.parametrize(
    "formdata",
    [
        {"profile": ["gpu"], "profile-option-gpu--gpus": ["2"], "profile-option-gpu--env": ["torch"]},
        {"profile": ["gpu"], "gpus": ["2"], "env": ["torch"]},
        {
            "_xsrf": ["token"],
            "profile": ["gpu"],
            "profile-option-gpu--gpus": ["2"],
            "profile-option-gpu--env": ["unlisted-choice"],
            "profile-option-gpu--env--unlisted-choice": ["torch"],
            "profile-option-cpu--gpus": ["9"],
        },
        {
            "profile": ["gpu"],
            "profile-option-gpu--gpus": ["2", ""],
            "profile-option-gpu--env": ["torch"],
            "profile-option-gpu--env--unlisted-choice": ["left over in the field"],
        },
        {"profile": ["gpu"], "profile-option-gpu--env--unlisted-choice": ["torch"], "gpus": ["2"]},
    ],
)
def test_a_form_of_kubespawners_names_or_flat_ones_gives_flat_options(formdata: dict[str, list[str]]) -> None:
    """Fields of other profiles, and texts next to a listed choice, are ignored."""
    assert choice_from_form(formdata) == {"profile": "gpu", "gpus": "2", "env": "torch"}


def test_an_empty_form_is_the_default_profile() -> None:
    """Empty fields count as not given."""
    assert choice_from_form({"_xsrf": ["x"]}) == {}
    with pytest.raises(RequestError, match="No profile is selected"):
        choice_from_form({"profile": [""], "_xsrf": ["x"]})


@pytest.mark.parametrize(
    ("formdata", "message"),
    [
        ({"profile": ["a", "b"]}, "profile is given twice"),
        ({"profile-option-gpu--gpus": ["2"]}, "Options were given without a profile. Choose a profile."),
        ({"profile": ["a\n"]}, "profile must be printable text of at most 255 characters"),
        ({"profile": ["a"], "env": ["unlisted-choice"]}, "env: 'Other' was chosen, but no value was entered"),
    ],
)
def test_a_form_that_makes_no_choice_is_refused(formdata: dict[str, list[str]], message: str) -> None:
    """The error says which field."""
    with pytest.raises(RequestError) as caught:
        choice_from_form(formdata)
    assert str(caught.value).startswith(message)


def test_rest_options_keep_their_types() -> None:
    """Numbers stay numbers."""
    assert parse_choice({"profile": "gpu", "hours": 2.5, "gpus": 2, "env": "torch"}) == UserChoice(
        "gpu", {"hours": 2.5, "gpus": 2, "env": "torch"}
    )


@pytest.mark.parametrize(
    ("user_options", "field", "message"),
    [
        ({"profile": 3}, "profile", "profile must be text"),
        ({"profile": None}, "profile", "profile must be text or a number, not NoneType"),
        ({"gpus": True}, "gpus", "gpus must be text or a number, not bool"),
        ({"gpus": [1]}, "gpus", "gpus must be text or a number, not list"),
        ({"gpus": {"a": 1}}, "gpus", "gpus must be text or a number, not dict"),
        ({"gpus": float("nan")}, "gpus", "gpus must be a number below"),
        ({"gpus": 10**400}, "gpus", "gpus must be a number below"),
        ({"env": "a\n#SBATCH --uid=root"}, "env", "env must be printable text"),
        ({"env": "x" * 256}, "env", "env must be printable text of at most 255 characters"),
        ({"a\nb": "x"}, "user_options", "'a\\nb' is not a valid option name"),
        ({f"o{n}": 1 for n in range(65)}, "", "Too many options: 65"),
    ],
)
def test_what_is_no_flat_option_is_refused_by_name(user_options: dict[str, object], field: str, message: str) -> None:
    """Types, lengths and control characters are checked first."""
    with pytest.raises(RequestError) as caught:
        parse_choice(user_options)
    assert str(caught.value).startswith(message)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "formdata",
    [
        {"profile": ["gpu"], "profile-option-gpu--alternatives": ["k80", "cpu"]},
        {"profile": ["gpu"], "profile-option-gpu--alternatives": ["cpu", "k80", ""], "profile-option-k80--x": ["1"]},
        {"profile": ["gpu"], "alternatives": ["cpu,k80"]},
    ],
)
def test_what_is_accepted_as_well_is_one_option_with_several_values(formdata: dict[str, list[str]]) -> None:
    """The boxes that are checked on a form, or the text of a link."""
    options = choice_from_form(formdata)

    assert options == {"profile": "gpu", "alternatives": "cpu,k80"}
    assert parse_choice(options) == UserChoice("gpu", {}, ("cpu", "k80"))


def test_what_is_accepted_as_well_is_text() -> None:
    """The error says what would be right."""
    with pytest.raises(RequestError, match="alternatives must be text: slugs of profiles with commas"):
        parse_choice({"alternatives": 7})
