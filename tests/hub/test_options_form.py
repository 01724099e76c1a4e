"""The form: what it offers, what it says, and that nothing in it is code."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.hub.options_form import _environment, cards, duration, what_you_get
from jupyterhub_gpuspawner.profile import parse_profiles

PROFILES = parse_profiles(
    [
        {
            "display_name": "One K80",
            "slug": "k80",
            "slurm": {"gpus": 1, "gpu_type": "k80", "cpus": 4, "memory": "8G", "time": "1:00:00"},
            "profile_options": {
                "gpus": {"display_name": "GPUs", "range": {"min": 1, "max": 4, "sets": "slurm.gpus"}},
                "image": {
                    "choices": {"a": {"display_name": "Image A", "default": True}, "b": {}},
                    "unlisted_choice": {"validation_regex": "[a-z/]+", "sets": "environment.container"},
                },
            },
        },
        {"display_name": '<b>Bold</b> & "quoted"', "slug": "bold", "description": "<script>alert(1)</script>"},
    ]
)

DURATIONS = {
    60: "1 minute",
    90 * 60: "90 minutes",
    3600: "1 hour",
    2 * 3600: "2 hours",
    150 * 60: "2 hours 30 minutes",
    8 * 3600: "8 hours",
    26 * 3600: "1 day 2 hours",
    7 * 86400: "7 days",
}


def form(last: dict[str, object]) -> BeautifulSoup:
    """The form as the browser gets it."""
    html = _environment().get_template("options_form.html").render(profiles=cards(PROFILES, last))
    return BeautifulSoup(html, "html.parser")


@pytest.mark.parametrize(("seconds", "words"), DURATIONS.items())
def test_a_time_limit_in_words(seconds: int, words: str) -> None:
    """The shortest exact words."""
    assert duration(seconds) == words


def test_a_profile_says_what_one_gets() -> None:
    """GPUs, cores, memory and time in one line; a profile that does not say gives none."""
    assert [what_you_get(profile) for profile in PROFILES] == ["1 x k80, 4 cores, 8 GiB memory, 1 hour", ""]


def test_the_form_has_kubespawners_field_names_and_the_defaults() -> None:
    """One radio button a profile; an option's bounds are the field's; the first profile is chosen."""
    page = form({})
    fields = {field["name"]: field.get("value") for field in page.select("input:not([type=radio])")}
    number = page.select_one("[name=profile-option-k80--gpus]")

    assert [(radio["value"], radio.has_attr("checked")) for radio in page.select("input[type=radio]")] == [
        ("k80", True),
        ("bold", False),
    ]
    assert fields == {"profile-option-k80--gpus": "1", "profile-option-k80--image--unlisted-choice": ""}
    assert number is not None
    assert (number["min"], number["max"], number["step"]) == ("1", "4", "1")
    assert [option["value"] for option in page.select("option[selected]")] == ["a"]


def test_the_last_choice_is_chosen_again() -> None:
    """Profile, number and text of one's own come back."""
    page = form({"profile": "k80", "gpus": 3, "image": "my/image"})
    fields = {field["name"]: field.get("value") for field in page.select("input:not([type=radio])")}

    assert fields == {"profile-option-k80--gpus": "3", "profile-option-k80--image--unlisted-choice": "my/image"}
    assert [option["value"] for option in page.select("option[selected]")] == ["unlisted-choice"]


def test_a_profiles_words_are_text_and_no_html() -> None:
    """Markup in names and descriptions is shown, not run."""
    page = form({"profile": "bold"})

    assert page.select("script, b") == []
    assert page.select_one("label[for=profile-bold]").text == '<b>Bold</b> & "quoted"'  # type: ignore[union-attr]
