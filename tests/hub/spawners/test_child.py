"""The settings that a profile's child spawner gets from its wrapper."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner
from tornado.web import HTTPError
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub import registered
from jupyterhub_gpuspawner.hub.jupyterhub_compat import NO_TIME_LIMIT
from jupyterhub_gpuspawner.hub.spawners.child import configured_as
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.profile import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve


def wrapper(**sections: dict[str, Any]) -> GPUProfilesSpawner:
    """Return a spawner with this configuration: ``wrapper(Spawner={"http_timeout": 5})``."""
    return GPUProfilesSpawner(config=Config({name: Config(values) for name, values in sections.items()}))


def request(**fields: Any) -> JobRequest:
    """Return the request of a profile with these fields."""
    profiles = parse_profiles([{"display_name": "P", **fields}])
    return resolve(profiles, {}, username="ada", groups=(), server_name="", now=datetime(2026, 3, 3, 10))


SLOW = {"start_timeout": 900}
TIMES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "the profile says": ({"GPUSlurmSpawner": SLOW}, {"start_timeout": 5}, 5),
    "the site says so for jobs": ({"GPUSlurmSpawner": SLOW}, {}, 900),
    "the site says so for every server": ({"Spawner": {"start_timeout": 70}}, {}, 70),
    "the site says so for the wrapper": (
        {"GPUSlurmSpawner": SLOW, "GPUProfilesSpawner": {"start_timeout": 80}},
        {},
        80,
    ),
    "nobody says": ({}, {}, 300),  # batchspawner's
}


@pytest.mark.parametrize(("sections", "fields", "expected"), TIMES.values(), ids=TIMES.keys())
def test_which_start_timeout_the_hub_uses(sections: dict[str, Any], fields: dict[str, Any], expected: int) -> None:
    """The setting nearest to the job; wrapper and child agree, since the hub reads the wrapper's."""
    spawner = wrapper(**sections)
    spawner.prepare(request(**fields))

    assert (spawner.start_timeout, spawner.child_spawner.start_timeout) == (expected, expected)


def test_a_profiles_times_do_not_stick_to_the_next_choice() -> None:
    """After a failed start the same spawner object is used again."""
    spawner = wrapper(GPUSlurmSpawner=SLOW)
    spawner.prepare(request(start_timeout=5, http_timeout=6, poll_interval=7))
    spawner.prepare(request())

    assert (spawner.start_timeout, spawner.http_timeout, spawner.poll_interval) == (900, 30, 30)


@pytest.mark.parametrize(
    ("fields", "app"),
    [({}, ""), ({"app": "code-server"}, "VS Code"), ({"app": {"kind": "streamlit", "name": "Maps"}}, "Maps")],
    ids=["Jupyter", "a known one", "one with a name"],
)
def test_a_restarted_hub_knows_the_application(fields: dict[str, Any], app: str) -> None:
    """By its name, from the stored state: the profile may have changed since."""
    before, after = wrapper(), wrapper()
    before.prepare(request(**fields))
    assert before.child is not None

    after.load_state(json.loads(json.dumps({**before.get_state(), "child": {"job_id": "7"}})))

    assert after.child is not None
    assert (before.child.app, after.child.app) == (app, app)


def test_a_hooks_time_reaches_the_child() -> None:
    """Hooks run after the choice is made."""
    spawner = wrapper()
    spawner.prepare(request())
    spawner.start_timeout = 42
    spawner.hand_down()

    assert spawner.child_spawner.start_timeout == 42


def test_the_profiles_settings_override_the_wrappers() -> None:
    """What the admin or a hook sets on the wrapper does not replace what the profile sets."""
    spawner = wrapper(GPUProfilesSpawner={"default_url": "/lab", "notebook_dir": "~"})
    spawner.prepare(request(default_url="/lab/tree/start.ipynb"))
    spawner.hand_down()

    assert (spawner.child_spawner.default_url, spawner.child_spawner.notebook_dir) == ("/lab/tree/start.ipynb", "~")


def test_environments_are_joined() -> None:
    """With increasing precedence: all servers', all jobs', the wrapper's and a hook's."""
    spawner = wrapper(
        Spawner={"environment": {"A": "server", "B": "server"}},
        GPUSlurmSpawner={"environment": {"B": "job", "C": "job"}},
    )
    spawner.prepare(request())
    spawner.environment["C"] = "hook"
    spawner.hand_down()

    assert spawner.child_spawner.environment == {"A": "server", "B": "job", "C": "hook"}


def test_a_profile_cannot_share_what_it_changes() -> None:
    """Traits are copied: a server's child never writes into the hub's configuration."""
    chosen = request(traits={"environment": {"A": "profile"}})
    spawner = wrapper()
    spawner.prepare(chosen)
    spawner.child_spawner.environment["A"] = "changed"

    assert chosen.traits == {"environment": {"A": "profile"}}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a name that is no setting": (
        {"traits": {"req_foo": "1"}},
        "profile p: GPUSlurmSpawner has no setting 'req_foo'. The reference lists the settings of each spawner.",
    ),
    "a value of another type": (
        {"traits": {"slurm_limit": "many"}},
        "profile p: The 'slurm_limit' trait of a GPUSlurmSpawner instance expected an int, not the str 'many'.",
    ),
    "a class that is none": (
        {"kind": "other", "spawner_class": "os.path"},
        "profile p: 'os.path' is not a Spawner class",
    ),
}


@pytest.mark.parametrize(("fields", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_profile_that_no_spawner_takes(fields: dict[str, Any], sentence: str) -> None:
    """ConfigError names the profile."""
    with pytest.raises(ConfigError) as refused:
        wrapper().prepare(request(**fields))

    assert str(refused.value) == sentence


NAMES: dict[str, tuple[dict[str, Any], str]] = {
    "ours": ({"GPUProfilesSpawner": {"profiles": []}}, "c.GPUProfilesSpawner.profiles"),
    "wrapspawner's": ({"ProfilesSpawner": {"profiles": []}}, "c.ProfilesSpawner.profiles"),
    "both": (
        {"ProfilesSpawner": {"profiles": []}, "GPUProfilesSpawner": {"profiles": []}},
        "c.GPUProfilesSpawner.profiles",
    ),
    "nowhere": ({}, "c.GPUProfilesSpawner.profiles"),
}


@pytest.mark.parametrize(("sections", "expected"), NAMES.values(), ids=NAMES.keys())
def test_a_setting_is_called_what_the_admin_called_it(sections: dict[str, Any], expected: str) -> None:
    """So that an error leads to the line of the configuration."""
    assert configured_as(wrapper(**sections), "profiles") == expected


class Slow(SimpleLocalProcessSpawner):  # type: ignore[misc]
    """Another package's spawner, which leaves it to JupyterHub to give up a start."""

    async def start(self) -> None:
        await asyncio.sleep(60)


async def test_a_child_that_does_not_watch_its_own_time_is_given_up_by_its_wrapper() -> None:
    """With the exception of JupyterHub's own time-out, which it leaves to the wrapper; the setting stays as it is."""
    spawner = wrapper()
    spawner.prepare(request(kind="other", spawner_class=f"{__name__}.Slow", start_timeout=1))
    start = asyncio.ensure_future(spawner.start())
    read = spawner.start_timeout
    with pytest.raises(asyncio.TimeoutError):
        await start

    assert read == NO_TIME_LIMIT
    assert spawner.start_timeout == 1


async def test_no_kind_of_child_starts_in_a_hub_that_was_set_up_without_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page has no form, so the user could not have chosen the profile."""

    class Hub:
        """JupyterHub, as far as it is compared."""

    monkeypatch.setattr(registered, "this_hub", Hub)
    spawner = wrapper()
    spawner.prepare(request(kind="other", spawner_class="jupyterhub.spawner.SimpleLocalProcessSpawner"))

    with pytest.raises(HTTPError, match="it is not set up correctly"):
        await spawner.start()
