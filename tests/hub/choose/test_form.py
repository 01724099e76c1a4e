"""The form of a hub that knows nothing of when jobs would start: profiles, options, refusals, and the button."""

from __future__ import annotations

from datetime import datetime, timezone

from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub.choose.offer import FilledIn, of_a_form, offers, profile_statuses
from jupyterhub_gpuspawner.hub.choose.page import form_html
from jupyterhub_gpuspawner.hub.extension import Forecast
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=timezone.utc)
PROFILES = parse_profiles(
    [
        {
            "display_name": "K80s",
            "slurm": {"partition": "gpu", "gpus": 1, "gpu_type": "k80", "cpus": 4, "memory": "8G", "time": "1:00:00"},
            "profile_options": {
                "gpus": {"range": {"min": 1, "max": 4, "sets": "slurm.gpus"}},
                "where": {"choices": {"here": {}, "there": {"slurm": {"partition": "old"}}}},
            },
        },
        {"display_name": "A100s", "slurm": {"gpus": 1}, "alternatives": ["k80s", "spring", "gone"]},
        {"display_name": "Spring", "allow": {"from": "2026-03-21"}},
        {"display_name": "Yesterday", "slurm": {"reservation": {"2000-01-01": "old"}}},
    ]
)


def form(filled_in: FilledIn = FilledIn()) -> BeautifulSoup:  # noqa: B008 - it is frozen
    """The form as the browser receives it."""
    statuses = profile_statuses(PROFILES, username="ann", groups=(), now=NOW)
    html = form_html(offers(statuses, filled_in, base_url="/hub/"), now=NOW.timestamp(), forecast=Forecast())
    return BeautifulSoup(html, "html.parser")


def test_a_profile_says_what_one_gets_and_nothing_of_when() -> None:
    """Its CPUs are not called cores, since the nodes are not known; choices have their names alone."""
    page = form()
    (profile, *_) = page.select(".gs-choice")

    assert [item.text for item in profile.select(".gs-got li")] == [
        "1 \N{MULTIPLICATION SIGN} K80, 12 GB",
        "4 CPUs",
        "8 GiB memory",
        "1 h",
    ]
    assert [option.text for option in profile.select("option")] == ["here", "there"]
    assert [line.text for line in profile.select(".gs-when > .gs-state")] == [""]
    assert page.select_one("#gpuspawner-silent:not([hidden])") is None


def test_what_cannot_be_chosen_says_why() -> None:
    """It begins later, or has no reservation today."""
    page = form()
    closed = {str(radio["value"]) for radio in page.select("input[type=radio][disabled]")}
    states = [line.text for line in page.select(".gs-closed .gs-about > strong")]

    assert closed == {"spring", "yesterday"}
    assert [state[:40] for state in states] == [
        "Not yet: it is available from 21 Mar 202",
        "There is no reservation for 2026-03-02; ",
    ]


def test_a_value_that_is_refused_is_told_at_its_field() -> None:
    """The start is refused, and the values are kept."""
    sent = {"profile": ["k80s"], "profile-option-k80s--gpus": ["9"]}
    page = form(of_a_form(sent, RequestError("GPUs must be 1 to 4.", field="gpus")))
    field = page.select_one("input[name=profile-option-k80s--gpus]")

    assert field is not None
    assert (field["value"], field["aria-invalid"]) == ("9", "true")
    assert [fault.text for fault in page.select(".gs-field .gs-fault")] == ["GPUs must be 1 to 4."]
    assert {line.text.strip() for line in page.select(".gs-when > .never")} >= {"This choice cannot start."}


def test_what_may_be_accepted_as_well_is_a_check_box_of_its_profile() -> None:
    """Only what its user may start now; a link and the last choice check it."""
    page = form(FilledIn("a100s", {"alternatives": "k80s"}))
    boxes = page.select("input[type=checkbox]")

    assert [(box["name"], box["value"], box.has_attr("checked")) for box in boxes] == [
        ("profile-option-a100s--alternatives", "k80s", True)
    ]
    assert [label.text for box in boxes for label in page.select(f"label[for='{box['id']}']")] == ["K80s"]
    assert "opt-alternatives=k80s" in str(page.select("#profile-a100s ~ * a, .gpuspawner-link"))
    assert not form(FilledIn("k80s", {"alternatives": "k80s"})).select("input[type=checkbox][checked]")
