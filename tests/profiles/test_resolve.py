"""From user options to a job request: what is resolved, and what is refused."""

from __future__ import annotations

import string
import time as clock
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.errors import Refusal, RefusalKind, RequestError
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import Defaults, JobRequest, covers, permitted, resolve, with_partitions_of
from jupyterhub_gpuspawner.profiles.resources import Environment, PlacementRules, Resources
from tests.standins.resources import resolved

BERLIN = timezone(timedelta(hours=1))
NOW = datetime(2026, 3, 3, 10, 0, tzinfo=BERLIN)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hub's machine is in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    clock.tzset()
    yield
    monkeypatch.undo()
    clock.tzset()


SITE = parse_profiles(
    [
        {"display_name": "CPU", "slug": "cpu", "slurm": {"partition": "batch", "cpus": 2}},
        {
            "display_name": "GPU",
            "slug": "gpu",
            "default": True,
            "start_timeout": 900,
            "queue_timeout": "UNLIMITED",
            "slurm": {"partition": "gpu", "gpus": 1, "gpu_type": "a100", "cpus": 4, "memory": "16G"},
            "environment": {"modules": ["CUDA"]},
            "placement": {"policy": "restricted"},
            "profile_options": {
                "gpus": {"range": {"min": 1, "max": 4, "sets": "slurm.gpus"}},
                "hours": {"range": {"min": 1, "max": 8, "sets": "slurm.time", "unit": "hours", "default": 2}},
                "software": {
                    "choices": {
                        "torch": {"environment": {"modules": ["PyTorch"]}, "default_url": "/lab/tree/torch.ipynb"},
                        "plain": {"default": True},
                    },
                    "unlisted_choice": {"validation_regex": "[a-z]+", "sets": "environment.conda"},
                },
            },
        },
        {
            "display_name": "Course",
            "slug": "course",
            "slurm": {"gpu_type": "1g.10gb", "reservation": {"2026-03-02": "ml-hpc-1", "2026-03-03": "ml-hpc-2"}},
            "allow": {"groups": ["course", "tutors"], "users": ["ada"], "from": "2026-03-02", "until": "2026-03-04"},
        },
        {"display_name": "Test", "slug": "test", "kind": "local", "traits": {"ip": ""}},
    ]
)


def _resolve(
    options: dict[str, object], *, groups: tuple[str, ...] = (), now: datetime = NOW, defaults: Defaults | None = None
) -> JobRequest:
    return resolve(SITE, options, username="bob", groups=groups, server_name="", now=now, defaults=defaults)


def test_choices_that_exclude_each_other_are_an_error_of_the_request() -> None:
    """Each is allowed alone, but no job can have both GPUs and shards."""
    options = {name: {"range": {"min": 0, "max": 4, "sets": f"slurm.{name}"}} for name in ("gpus", "shards")}
    profiles = parse_profiles([{"display_name": "Any", "slug": "any", "profile_options": options}])
    with pytest.raises(RequestError) as caught:
        resolve(profiles, {"gpus": 1, "shards": 2}, username="bob", groups=(), server_name="", now=NOW)
    assert (str(caught.value), caught.value.field) == (
        "GPUs and shards cannot be requested together. Choose one.",
        "slurm.gpus",
    )


def test_no_options_are_the_default_profile_with_its_own_values() -> None:
    """All values are plain; only the user's choices are stored."""
    assert _resolve({}) == JobRequest(
        profile=next(profile for profile in SITE if profile.slug == "gpu"),
        username="bob",
        server_name="",
        resources=resolved(
            partition="gpu", gpus=1, gpu_type="a100", cpus=4, memory=16384, time=7200, time_unit="hours"
        ),
        environment=Environment(modules=("CUDA",)),
        placement=PlacementRules(policy="restricted"),
        options={"profile": "gpu"},
    )


def test_options_are_put_over_the_profile_and_stored_in_their_own_type() -> None:
    """A text from a form and a number from REST make the same request."""
    form = _resolve({"profile": "gpu", "gpus": "3", "hours": "8", "software": "torch"})
    rest = _resolve({"profile": "gpu", "gpus": 3, "hours": 8, "software": "torch"})
    assert form == rest
    assert (form.resources.gpus, form.resources.time) == (3, 28800)
    assert (form.environment.modules, form.default_url) == (("CUDA", "PyTorch"), "/lab/tree/torch.ipynb")
    assert form.options == {"profile": "gpu", "gpus": 3, "hours": 8, "software": "torch"}


def test_a_text_of_the_users_own_sets_its_field() -> None:
    """If the option allows free text."""
    assert _resolve({"profile": "gpu", "software": "mine"}).environment.conda == "mine"


def test_stored_options_are_resolved_anew() -> None:
    """Stored options give the same request again."""
    first = _resolve({"profile": "gpu", "gpus": "3"})
    assert _resolve(dict(first.options)) == first


def test_a_mig_profile_alone_asks_for_one_and_the_reservation_is_todays() -> None:
    """Like a gres without a count in sbatch; the day is taken from the hub's clock."""
    assert _resolve({"profile": "course"}, groups=("course",)).resources == resolved(
        gpus=1, gpu_type="1g.10gb", reservation="ml-hpc-2"
    )


def test_no_gpu_is_no_gres() -> None:
    """Zero GPUs of a type request nothing."""
    profiles = parse_profiles([{"display_name": "P", "slurm": {"gpus": 0, "gpu_type": "a100"}}])
    request = resolve(profiles, {}, username="bob", groups=(), server_name="", now=NOW)
    assert (request.resources.gres, request.resources.gpu_type) == ((), None)


def test_the_sites_defaults_hold_where_profile_and_user_say_nothing() -> None:
    """For Slurm jobs alone."""
    defaults = {"": Resources.model_validate({"partition": "all", "account": "site", "time": "1:00:00", "cpus": 1})}
    cpu = _resolve({"profile": "cpu"}, defaults=defaults)
    assert cpu.resources == resolved(partition="batch", cpus=2, account="site", time=3600)
    assert _resolve({"profile": "test"}, defaults=defaults).resources == resolved()


CPUS = {"cores": {"range": {"min": 4, "max": 16, "sets": "slurm.cpus"}}}
SIZES = {
    "size": {"choices": {"large": {"slurm": {"cpus": 8}}, "anywhere": {"slurm": {"partition": None}}}},
    "cores": {"range": {"min": 2, "max": 8, "sets": "slurm.cpus"}},
}
HINT = {"hint": {"choices": {"cores": {"slurm": {"extra": ["--hint=nomultithread"]}}}}}
MERGED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "site's alone": ({"partition": "all", "nodes": 2}, {}, {}, {"partition": "all", "nodes": 2}),
    "profile over site": ({"partition": "all", "cpus": 1}, {"cpus": 2}, {}, {"partition": "all", "cpus": 2}),
    "null takes a default away": (
        {"partition": "all", "account": "site"},
        {"partition": None},
        {},
        {"account": "site"},
    ),
    "null of a choice does, too": (
        {"partition": "all"},
        {"partition": "gpu", "options": SIZES},
        {"size": "anywhere"},
        {"cpus": 2},
    ),
    "lines are added": (
        {"extra": ["--mail-type=END"]},
        {"extra": ["--hint=nomultithread"]},
        {},
        {"extra": ("--mail-type=END", "--hint=nomultithread")},
    ),
    "null leaves the site's lines out": ({"extra": ["--mail-type=END"]}, {"extra": None}, {}, {}),
    "null leaves the site's lines out where a choice adds one": (
        {"extra": ["--mail-type=END"]},
        {"extra": None, "options": HINT},
        {},
        {"extra": ("--hint=nomultithread",)},
    ),
    "shards instead of the site's GPUs": ({"gpus": 1, "gpu_type": "a100"}, {"shards": 2}, {}, {"shards": 2}),
    "GPUs instead of the site's shards": ({"shards": 2}, {"gpus": 1}, {}, {"gpus": 1}),
    "a profile's GPUs are of any type": ({"gpus": 8, "gpu_type": "a100"}, {"gpus": 1}, {}, {"gpus": 1}),
    "a type alone is one GPU": ({"gpus": 8}, {"gpu_type": "a100"}, {}, {"gpus": 1, "gpu_type": "a100"}),
    "zero GPUs are none": ({"gpus": 1, "gpu_type": "a100"}, {"gpus": 0}, {}, {"gpus": 0}),
    "zero GPUs are no shards either": ({"shards": 2}, {"gpus": 0}, {}, {"gpus": 0}),
    "zero GPUs are none of several kinds": (
        {"extra": ["--gres=gpu:a100:1,gpu:k80:1", "--gres=nvme:1"]},
        {"gpus": 0},
        {},
        {"gpus": 0, "extra": ("--gres=nvme:1",)},
    ),
    "several kinds of GPUs where nothing is said": (
        {"extra": ["--gres=gpu:a100:1,gpu:k80:1"]},
        {},
        {},
        {"extra": ("--gres=gpu:a100:1,gpu:k80:1",)},
    ),
    "null of GPUs takes their type along": ({"gpus": 1, "gpu_type": "a100"}, {"gpus": None}, {}, {}),
    "null of GPUs leaves shards": ({"shards": 2}, {"gpus": None}, {}, {"shards": 2}),
    "null of GPUs where the site names a type": ({"gpu_type": "a100"}, {"gpus": None}, {}, {}),
    "null of the type is any type": ({"gpus": 2, "gpu_type": "a100"}, {"gpu_type": None}, {}, {"gpus": 2}),
    "an option of GPUs instead of the site's": (
        {"shards": 2},
        {"options": {"n": {"range": {"min": 1, "max": 4, "sets": "slurm.gpus"}}}},
        {"n": 3},
        {"gpus": 3},
    ),
    "a default below a range": ({"cpus": 2}, {"options": CPUS}, {}, {"cpus": 4}),
    "a default within a range": ({"cpus": 8}, {"options": CPUS}, {}, {"cpus": 4}),
    "a choice within a range": ({"cpus": 2}, {"options": CPUS}, {"cores": 16}, {"cpus": 16}),
    "an untouched range over another option": ({}, {"options": SIZES}, {"size": "large"}, {"cpus": 2}),
    "a reservation by date": ({"reservation": {"2026-03-03": "today"}}, {}, {}, {"reservation": "today"}),
    "a null of a reservation": ({"reservation": {"2026-03-02": "yesterday"}}, {"reservation": None}, {}, {}),
}


@pytest.mark.parametrize(("site", "profile", "choice", "expected"), MERGED.values(), ids=MERGED.keys())
def test_site_profile_and_choice_become_one_request(
    site: dict[str, Any], profile: dict[str, Any], choice: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Choice overrides profile, profile overrides site; GPUs and shards are overridden together."""
    slurm = {name: value for name, value in profile.items() if name != "options"}
    document = {"display_name": "P", "slurm": slurm, "profile_options": profile.get("options", {})}
    request = resolve(
        parse_profiles([document]),
        choice,
        username="bob",
        groups=(),
        server_name="",
        now=NOW,
        defaults={"": Resources.model_validate(site)},
    )
    assert request.resources == resolved(**expected)


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        (
            {"profile": "gpux"},
            "profile",
            "There is no profile 'gpux'. You can choose: CPU (cpu), GPU (gpu), Test (test).",
        ),
        (
            {"profile": "course"},
            "profile",
            "You cannot use Course now: it is reserved for the groups course, tutors. You can choose: CPU, GPU, Test.",
        ),
        ({"profile": "cpu", "gpus": 1}, "gpus", "CPU has no option 'gpus'. It has no options."),
        ({"gpu": 1}, "gpu", "GPU has no option 'gpu'. Its options are gpus, hours, software."),
        ({"gpus": 5}, "gpus", "gpus: 5 is not allowed: it must be a number from 1 to 4."),
        ({"gpus": "many"}, "gpus", "gpus: 'many' is not allowed: it must be a number from 1 to 4."),
        ({"hours": 1.5}, "hours", "hours: 1.5 is not allowed: it must be a number from 1 to 8 (hours)."),
        ({"software": "a b"}, "software", "software: 'a b' is not allowed: it must match [a-z]+."),
        ({"software": "a\nb"}, "software", "software must be printable text of at most 255 characters."),
        ({"gpus": True}, "gpus", "gpus must be text or a number, not bool."),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(options: dict[str, object], field: str, message: str) -> None:
    """The error names the field and its bounds."""
    with pytest.raises(RequestError) as caught:
        _resolve(options)
    assert (str(caught.value), caught.value.field, caught.value.status_code) == (message, field, 400)


def test_a_refusal_names_the_first_of_many_profiles() -> None:
    """Each with its slug, which a program needs."""
    profiles = parse_profiles([{"display_name": f"P {n}", "slug": f"p{n}"} for n in range(40)])
    with pytest.raises(RequestError) as caught:
        resolve(profiles, {"profile": "q"}, username="bob", groups=(), server_name="", now=NOW)

    first = ", ".join(f"P {n} (p{n})" for n in range(12))
    assert caught.value.hint == f"You can choose: {first} and 28 more."


def test_a_day_without_a_reservation_is_told() -> None:
    """The table has no entry for the course's last day."""
    with pytest.raises(RequestError) as caught:
        _resolve({"profile": "course"}, groups=("course",), now=NOW + timedelta(days=1))
    assert (str(caught.value), caught.value.field) == (
        "There is no reservation for 2026-03-04; days are 2026-03-02, 2026-03-03.",
        "slurm.reservation",
    )


def test_nobody_gets_a_profile_that_is_not_theirs_by_default() -> None:
    """Without a choice the first permitted profile is used; if there is none, those that begin later are named."""
    course = [profile for profile in SITE if profile.slug == "course"]
    later = [*course, *parse_profiles([{"display_name": "Summer", "allow": {"from": "2999-06-01"}}])]

    def why(profiles: Sequence[Profile]) -> str:
        with pytest.raises(RequestError) as caught:
            resolve(profiles, {}, username="bob", groups=(), server_name="", now=NOW)
        return str(caught.value)

    assert why(course) == "No profile is available to you at the moment."
    assert why(later) == ("No profile is available to you at the moment (Summer: it is available from 1 Jun 2999).")
    everyone = [*course, *(profile for profile in SITE if profile.slug == "cpu")]
    assert resolve(everyone, {}, username="bob", groups=(), server_name="", now=NOW).profile.slug == "cpu"


def _allow(**allow: object) -> Profile:
    return parse_profiles([{"display_name": "P", "allow": allow}])[0]


@pytest.mark.parametrize(
    ("allow", "now", "refusal"),
    [
        ({}, NOW, None),
        ({"groups": ["a", "b"]}, NOW, None),
        ({"groups": ["b"]}, NOW, Refusal(RefusalKind.OTHER_GROUPS, "it is reserved for the group b")),
        ({"users": ["ada"]}, NOW, None),
        ({"users": ["bob"]}, NOW, Refusal(RefusalKind.OTHER_USERS, "it is reserved for other users")),
        ({"groups": ["b"], "users": ["ada"]}, NOW, None),
        ({"from": "2026-03-03"}, NOW, None),
        (
            {"from": "2026-03-04"},
            NOW,
            Refusal(RefusalKind.NOT_YET, "it is available from 4 Mar 2026", date(2026, 3, 4)),
        ),
        (
            {"from": "2026-03-03 10:01"},
            NOW,
            Refusal(RefusalKind.NOT_YET, "it is available from 3 Mar 2026, 10:01 CET", NOW.replace(minute=1)),
        ),
        ({"from": "2026-03-03T09:00:00+00:00"}, NOW, None),
        (
            {"from": "2026-03-03T09:01:00+00:00"},
            NOW,
            Refusal(RefusalKind.NOT_YET, "it is available from 3 Mar 2026, 10:01 CET", NOW.replace(minute=1)),
        ),
        ({"until": "2026-03-03"}, NOW.replace(hour=23, minute=59), None),
        (
            {"until": "2026-03-03"},
            NOW + timedelta(hours=14),
            Refusal(RefusalKind.ENDED, "it was available until 3 Mar 2026", date(2026, 3, 3)),
        ),
        (
            {"until": "2026-03-03 10:00"},
            NOW,
            Refusal(RefusalKind.ENDED, "it was available until 3 Mar 2026, 10:00 CET", NOW),
        ),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_users_groups_and_dates_are_checked_together(
    allow: dict[str, object], now: datetime, refusal: Refusal | None
) -> None:
    """ada is in group a; days end at midnight by the hub's clock."""
    assert permitted(_allow(**allow), "ada", {"a"}, now) == refusal


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("allow", "now", "sentence"),
    [
        ({"from": "2027-04-01 09:00"}, datetime(2027, 3, 20, 12), "it is available from 1 Apr 2027, 09:00 CEST"),
        ({"until": "2027-03-20 09:00"}, datetime(2027, 4, 20, 12), "it was available until 20 Mar 2027, 09:00 CET"),
    ],
)
def test_a_time_beyond_a_change_of_the_clocks_has_the_offset_of_its_day(
    allow: dict[str, object], now: datetime, sentence: str
) -> None:
    """Not that of today: in Berlin, summer time begins on 28 March 2027."""
    refusal = permitted(_allow(**allow), "ada", {"a"}, now.astimezone())

    assert refusal is not None
    assert refusal.text == sentence


@pytest.mark.usefixtures("berlin")
def test_a_day_begins_at_its_own_midnight() -> None:
    """Also where the clocks change before it."""
    allow = _allow(**{"from": "2027-04-01"})
    midnight = datetime(2027, 3, 31, 22, 0, tzinfo=timezone.utc)

    assert permitted(allow, "ada", {"a"}, midnight) is None
    assert permitted(allow, "ada", {"a"}, midnight - timedelta(minutes=1)) is not None


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2)


@given(st.dictionaries(st.text(max_size=20) | st.sampled_from(["profile", "gpus", "hours", "software"]), anything))
def test_any_body_gives_a_request_or_a_request_error(options: dict[str, object]) -> None:
    """Whatever a client sends raises RequestError or gives a request within the bounds."""
    try:
        request = _resolve(options)
    except RequestError as error:
        assert error.field or "options" in error.message  # noqa: PT017 - either way out is right
        assert str(error).isprintable()  # noqa: PT017
    else:
        assert request.resources.gpus in (None, 1, 2, 3, 4)
        assert set(request.environment.conda or "") <= set(string.ascii_lowercase)


def test_only_what_the_profile_names_is_accepted_in_its_place() -> None:
    """The choice is stored; the job is that of the profile itself."""
    profiles = parse_profiles([{"display_name": "A", "alternatives": ["b"]}, {"display_name": "B"}])

    def resolved_for(alternatives: str) -> JobRequest:
        options = {"profile": "a", "alternatives": alternatives}
        return resolve(profiles, options, username="ada", groups=(), server_name="", now=NOW)

    assert resolved_for("b").options == {"profile": "a", "alternatives": "b"}
    assert resolved_for("").options == {"profile": "a"}
    with pytest.raises(RequestError) as caught:
        resolved_for("b,a")
    assert (str(caught.value), caught.value.field) == (
        "'a' cannot be accepted in place of A. What can be is b.",
        "alternatives",
    )


def test_jobs_that_differ_by_partition_alone_are_one_for_both() -> None:
    """Slurm chooses between these; a job that differs in anything else stays another one."""
    slurm: dict[str, Any] = {"partition": "a", "cpus": 2}
    others: dict[str, dict[str, Any]] = {
        "b": {"slurm": {**slurm, "partition": "b"}, "description": "Another partition."},
        "c": {"slurm": {**slurm, "partition": "c", "cpus": 3}},
        "d": {"slurm": {**slurm, "partition": "d"}, "default_url": "/tree"},
        "e": {"slurm": {"cpus": 2}},
        "f": {"slurm": {**slurm, "partition": "f"}, "start_timeout": 7},
    }
    profiles = parse_profiles(
        [{"display_name": "A", "slurm": slurm}, *({"display_name": name, **other} for name, other in others.items())]
    )
    one, *requests = (
        resolve(profiles, {"profile": slug}, username="ada", groups=(), server_name="", now=NOW)
        for slug in ("a", *others)
    )
    both = with_partitions_of(one, requests)

    assert both == replace(one, resources=one.resources.model_copy(update={"partition": "a,b"}))
    assert [covers(both, request) for request in (one, *requests)] == [True, True, False, False, False, False]
    assert not covers(one, requests[0])
