"""Which settings the server of a profile has: the site's, a group's, a hook's and the profile's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner, Spawner
from tornado.web import HTTPError
from traitlets import HasTraits, TraitError, Unicode
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.failed_start import ending_of
from jupyterhub_gpuspawner.hub.jupyterhub_compat import NO_TIME_LIMIT
from jupyterhub_gpuspawner.hub.site import state
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import server_of
from jupyterhub_gpuspawner.hub.spawners.server_job import ServerJob
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.offered import Offered
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.slurm.commands import DEFAULT_TIMEOUT
from jupyterhub_gpuspawner.slurm.job import Account


def spawner_of(**sections: dict[str, Any]) -> GPUProfilesSpawner:
    """Return a spawner with this configuration: ``spawner_of(Spawner={"http_timeout": 5})``."""
    return GPUProfilesSpawner(config=Config({name: Config(values) for name, values in sections.items()}))


def request(**fields: Any) -> JobRequest:
    """Return the request of a profile with these fields; ``defaults`` are the site's."""
    defaults = fields.pop("defaults", None)
    profiles = parse_profiles([{"display_name": "P", **fields}])
    now = datetime(2026, 3, 3, 10)
    return resolve(profiles, {}, username="ada", groups=(), server_name="", now=now, defaults=defaults)


SLOW = {"start_timeout": 900}
TIMES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "the profile says": ({"GPUSlurmSpawner": SLOW}, {"start_timeout": 5}, 5),
    "the site says so for jobs": ({"GPUSlurmSpawner": SLOW}, {}, 900),
    "the site says so for every server": ({"Spawner": {"start_timeout": 70}}, {}, 70),
    "the site says so for profiles": (
        {"GPUSlurmSpawner": SLOW, "GPUProfilesSpawner": {"start_timeout": 80}},
        {},
        80,
    ),
    "nobody says": ({}, {}, 300),  # batchspawner's
}


@pytest.mark.parametrize(("sections", "fields", "expected"), TIMES.values(), ids=TIMES.keys())
def test_which_start_timeout_the_hub_uses(sections: dict[str, Any], fields: dict[str, Any], expected: int) -> None:
    """The setting nearest to the job."""
    spawner = spawner_of(**sections)
    spawner.prepare(request(**fields))

    assert spawner.start_timeout == expected


def test_a_profiles_times_do_not_stick_to_the_next_choice() -> None:
    """After a failed start the same spawner object is used again."""
    spawner = spawner_of(GPUSlurmSpawner=SLOW)
    spawner.prepare(request(start_timeout=5, traits={"http_timeout": 6, "poll_interval": 7}))
    spawner.clear_state()
    spawner.prepare(request())

    assert (spawner.start_timeout, spawner.http_timeout, spawner.poll_interval) == (900, 30, 30)


def test_a_job_that_is_only_tried_leaves_a_running_servers_settings_as_they_are() -> None:
    """Its own settings are read, and those of the site; one that is not valid changes nothing either."""
    spawner = spawner_of(GPUSlurmSpawner={"req_prologue": "site", "log_dir": "/site"})
    spawner.prepare(request(traits={"req_prologue": "runs", "http_timeout": 6}))

    tried = spawner.settings_of(request(traits={"req_prologue": "tried", "log_dir": "/tried"}))
    site = spawner.site_settings()
    with pytest.raises(ConfigError, match="http_timeout"):
        spawner.settings_of(request(traits={"log_dir": "/tried", "http_timeout": "long"}))

    assert (tried.req_prologue, tried.log_dir) == ("tried", "/tried")
    assert (site.req_prologue, site.log_dir) == ("site", "/site")
    assert (spawner.req_prologue, spawner.log_dir, spawner.http_timeout) == ("runs", "/site", 6)
    spawner.clear_state()
    spawner.prepare(request())
    assert (spawner.req_prologue, spawner.log_dir, spawner.http_timeout) == ("site", "/site", 30)


def test_a_hub_with_a_batch_script_of_its_own_is_checked_before_anybody_has_a_server() -> None:
    """The variables of a server, which a template may name, are those of a user's server alone."""
    spawner = spawner_of(GPUSlurmSpawner={"batch_script": "#!/bin/bash\n#SBATCH --export={keepvars}\n{cmd}\n"})
    spawner.profiles = [("P", "p", "batchspawner.SlurmSpawner", {"req_nprocs": "2"})]

    spawner.check()

    assert spawner.site_settings().variables == frozenset()


def test_a_restarted_hub_finds_the_profile_that_a_courses_server_narrows() -> None:
    """The course's own is none of the hub's; what the admin's sets, the server keeps."""
    before, after = spawner_of(), spawner_of()
    after.profiles = [{"display_name": "K80", "slug": "k80", "start_timeout": 900}]
    chosen = request(slug="course-deep")
    before.prepare(replace(chosen, offer=Offered(chosen.profile, base="k80")))
    after.load_state(json.loads(json.dumps({**before.get_state(), "job_id": "7"})))

    assert (after.chosen, after.start_timeout) == (before.chosen, 900)
    of_server = server_of(after, with_start=False)
    assert (of_server.profile, of_server.admin_profile) == ("course-deep", "k80")


def test_what_the_hubs_class_is_given_reaches_the_server() -> None:
    """Admins set it on the class that they name as the hub's."""
    own = {"env_keep": ["LD_LIBRARY_PATH"], "oauth_client_allowed_scopes": ["self"]}
    spawner = spawner_of(GPUProfilesSpawner=own)
    spawner.prepare(request())

    assert settings(spawner, own) == own


@pytest.mark.parametrize("section", ["Spawner", "GPUSlurmSpawner", "GPUProfilesSpawner"])
@pytest.mark.parametrize("name", ["start_timeout", "http_timeout"])
def test_a_time_in_which_no_server_can_start_is_refused(section: str, name: str) -> None:
    """When the hub starts, not with each start."""
    with pytest.raises((ConfigError, TraitError), match=f"{name}: -5 must be at least 1 second"):
        spawner_of(**{section: {name: -5}})


@pytest.mark.parametrize("section", ["Spawner", "GPUSlurmSpawner"])
def test_a_hub_without_a_command_is_refused(section: str) -> None:
    """JupyterHub allows it, for spawners whose image has one."""
    spawner = spawner_of(**{section: {"cmd": None}})
    spawner.profiles = [{"display_name": "P"}]
    with pytest.raises(ConfigError, match=rf"c\.{section}\.cmd: there is no command of a server"):
        spawner.check()


def test_a_variable_that_is_no_text_is_named_without_its_value() -> None:
    """sbatch could not be run with it."""
    spawner = spawner_of(Spawner={"environment": {"LIMIT": 7}})
    spawner.get_env = lambda: {"LIMIT": 7}  # type: ignore[dict-item,method-assign]
    with pytest.raises(ConfigError, match=r"Spawner\.environment: LIMIT has a value that is no text, but of type int"):
        spawner.job_environment(Account("ada", "/home/ada"))


SITE: dict[str, Any] = {"GPUSlurmSpawner": {"exec_prefix": "sudo -n -u {username}"}}
SECOND_CLUSTER = {
    "exec_prefix": "",
    "query_prefix": "ssh login-b",
    "slurm_bin_dir": "/opt/b/bin",
    "wrapper_dir": "/opt/b/libexec",
}


def restarted(
    profile_then: dict[str, Any], server: dict[str, Any], *profiles_now: dict[str, Any]
) -> GPUProfilesSpawner:
    """Return the spawner of a hub with ``profiles_now``, after a server of ``profile_then`` stored these facts."""
    before = spawner_of(**SITE)
    before.prepare(request(**profile_then))
    state = before.get_state()
    state = {**state, "child": server} if "child" in state else {**state, **server}
    profiles = [{"display_name": "P", **profile} for profile in profiles_now]
    after = spawner_of(**SITE, GPUProfilesSpawner={"profiles": profiles})
    after.load_state(json.loads(json.dumps(state)))
    return after


def settings(spawner: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return these settings of the spawner that starts the server."""
    return {name: getattr(spawner.child_spawner or spawner, name) for name in names}


THEN = {"traits": {"slurm_timeout": 60.0}}
CHANGED = {"traits": {"slurm_timeout": 50.0, "poll_interval": 7}}
NOW: dict[str, tuple[tuple[dict[str, Any], ...], float, int]] = {
    "as it was": ((THEN,), 60.0, 30),
    "changed": ((CHANGED,), 50.0, 7),
    "removed": ((), DEFAULT_TIMEOUT, 30),
    "of another kind": (({**CHANGED, "kind": "local", "traits": {}},), DEFAULT_TIMEOUT, 30),
    "with a setting that is none": (({"traits": {"slurm_bindir": "/opt"}},), DEFAULT_TIMEOUT, 30),
}


@pytest.mark.parametrize(("profiles", "slurm_timeout", "poll_interval"), NOW.values(), ids=NOW.keys())
def test_a_restarted_hub_has_the_profiles_settings_of_today(
    profiles: tuple[dict[str, Any], ...], slurm_timeout: float, poll_interval: int
) -> None:
    """Whatever has become of the profile, the job is kept."""
    spawner = restarted(THEN, {"job_id": "7"}, *profiles)

    assert (spawner.slurm_timeout, spawner.poll_interval, spawner.job_id) == (slurm_timeout, poll_interval, "7")


EARLIER: dict[str, dict[str, Any]] = {
    "an earlier version": {"version": 1, "profile": "p", "kind": "slurm", "child": {"job_id": "7"}},
    "wrapspawner": {"profile": "p", "child_conf": {}, "child_state": {"job_id": "7"}},
    "this version": {"version": 2, "profile": "p", "kind": "slurm", "job_id": "7"},
}


@pytest.mark.parametrize("state", EARLIER.values(), ids=EARLIER.keys())
def test_a_stored_job_is_found_again(state: dict[str, Any]) -> None:
    """Whoever stored it."""
    spawner = spawner_of(**SITE)
    spawner.load_state(state)

    assert (spawner.job_id, server_of(spawner, with_start=False).profile) == ("7", "p")


def test_a_job_of_an_earlier_version_is_found_on_the_cluster_of_its_profile() -> None:
    """Profiles could name another cluster then; the next server is on the hub's."""
    spawner = spawner_of(**SITE)
    spawner.load_state({**EARLIER["an earlier version"], "connection": SECOND_CLUSTER})
    values = settings(spawner, SECOND_CLUSTER)
    spawner.clear_state()

    assert values == SECOND_CLUSTER
    assert settings(spawner, SECOND_CLUSTER) == settings(spawner_of(**SITE), SECOND_CLUSTER)


ELSEWHERE = "tests.hub.spawners.test_profile_settings.ElsewhereSpawner"
ELSEWHERE_THEN = {
    "kind": "other",
    "spawner_class": ELSEWHERE,
    "traits": {"namespace": "jupyter-b", "port": 8000, "environment": {"TOKEN": "secret"}},
}


class ElsewhereSpawner(SimpleLocalProcessSpawner):  # type: ignore[misc]
    """Of another package: finds its servers by its namespace."""

    namespace = Unicode("default", config=True)

    async def start(self) -> str:
        """It runs elsewhere."""
        return "http://elsewhere"


@pytest.mark.parametrize(
    ("profiles", "environment"), [((ELSEWHERE_THEN,), {"TOKEN": "secret"}), ((), {})], ids=["as it was", "removed"]
)
def test_a_server_of_another_package_is_found_again(
    profiles: tuple[dict[str, Any], ...], environment: dict[str, str]
) -> None:
    """By all settings of its profile but its variables, which may be secret and are not stored."""
    spawner = restarted(ELSEWHERE_THEN, {"pod_name": "7"}, *profiles)

    assert settings(spawner, ("namespace", "port", "environment")) == {
        "namespace": "jupyter-b",
        "port": 8000,
        "environment": environment,
    }
    assert "secret" not in json.dumps(spawner.get_state())


def test_settings_of_the_last_profile_do_not_stay() -> None:
    """After a failed start, after another choice, and after a server that an earlier hub has started."""
    failed, changed = spawner_of(**SITE), spawner_of(**SITE)
    for spawner in (failed, changed):
        spawner.prepare(request(**THEN, start_timeout=5))
    failed.clear_state()
    resumed = restarted(THEN, {"job_id": "7"}, THEN)
    after = [failed, changed, resumed]
    for spawner in after:
        spawner.clear_state()  # JupyterHub's first step of each start
        spawner.prepare(request())
    fresh = spawner_of(**SITE)
    fresh.prepare(request())

    expected = settings(fresh, ("exec_prefix", "slurm_timeout", "start_timeout"))
    assert [settings(spawner, expected) for spawner in after] == [expected] * 3


async def overridden(
    override: dict[str, Any], *, site: Mapping[str, object] = MappingProxyType({}), **fields: Any
) -> Any:
    """Return the spawner of a start for which JupyterHub has applied a group's overrides to the site's settings."""
    overrides = {"all": {"groups": ["class"], "spawner_override": override}}
    spawner: Any = spawner_of(Spawner={"group_overrides": overrides}, GPUSlurmSpawner=dict(site))
    spawner.user = SimpleNamespace(name="ada", groups=[SimpleNamespace(name="class")])
    await spawner.apply_group_overrides()
    spawner.prepare(request(**fields, defaults=spawner.defaults()))
    return spawner


async def test_group_overrides_of_any_setting_reach_the_job() -> None:
    """And the spawner of the site's settings, from which a trial and the form are made; the profile's come first."""
    override = {
        "queue_timeout": "4:00:00",
        "req_partition": "gpu",
        "slurm_timeout": 20.0,
        "slurm_bin_dir": "/opt/b/bin",
    }
    spawner = await overridden(override, traits={"slurm_timeout": 60.0})

    assert settings(spawner, override) == {**override, "slurm_timeout": 60.0}
    assert {name: spawner.of_site(name) for name in override} == override
    assert spawner.get_state()["connection"] == {"slurm_bin_dir": "/opt/b/bin"}


async def test_overrides_of_a_failed_start_do_not_stay() -> None:
    """The next start has those of the groups in which its user is then."""
    override = {"req_partition": "gpu", "environment": {"A": "group"}}
    spawner = await overridden(override)
    spawner.clear_state()
    spawner.user.groups = []
    await spawner.apply_group_overrides()
    spawner.prepare(request())

    assert settings(spawner, override) == {"req_partition": "", "environment": {}}


async def test_a_group_override_that_is_not_valid_is_named() -> None:
    """Its text is the admin's."""
    with pytest.raises(HTTPError) as refused:
        await overridden({"slurm_timeout": "long"})

    ending = ending_of(refused.value)
    assert ending is not None
    assert "c.Spawner.group_overrides: The 'slurm_timeout' trait" in words_of(ending).hint


def test_the_profiles_settings_override_the_wrappers() -> None:
    """What the admin sets on the wrapper does not replace what the profile sets."""
    spawner = spawner_of(GPUProfilesSpawner={"default_url": "/lab", "notebook_dir": "~"})
    spawner.prepare(request(default_url="/lab/tree/start.ipynb"))

    assert (spawner.default_url, spawner.notebook_dir) == ("/lab/tree/start.ipynb", "~")


def test_environments_are_joined() -> None:
    """With increasing precedence: all servers', all jobs', the wrapper's and a hook's."""
    spawner = spawner_of(
        Spawner={"environment": {"A": "server", "B": "server"}},
        GPUSlurmSpawner={"environment": {"B": "job", "C": "job"}},
    )
    spawner.prepare(request())
    spawner.environment["C"] = "hook"

    assert spawner.environment == {"A": "server", "B": "job", "C": "hook"}


def test_a_profile_cannot_share_what_it_changes() -> None:
    """Traits are copied: a server never writes into the hub's configuration."""
    chosen = request(traits={"environment": {"A": "profile"}})
    spawner = spawner_of()
    spawner.prepare(chosen)
    spawner.environment["A"] = "changed"

    assert chosen.profile.traits == {"environment": {"A": "profile"}}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a value of another type": (
        {"traits": {"slurm_timeout": "many"}},
        "profile p: The 'slurm_timeout' trait of a GPUProfilesSpawner instance expected a float, not the str 'many'.",
    ),
    "another cluster": (
        {"traits": {"slurm_bin_dir": "/opt/b/bin"}},
        "profile p: slurm_bin_dir is the same for all servers of a cluster. Set it in c.GPUSlurmSpawner.clusters, and "
        "slurm.cluster in the profile; or for all servers: c.GPUSlurmSpawner.slurm_bin_dir = "
        "'/opt/b/bin'.",
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
        spawner_of().prepare(request(**fields))

    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("sections", "setting"),
    [
        (("GPUProfilesSpawner",), "c.GPUProfilesSpawner.profiles"),
        (("ProfilesSpawner",), "c.ProfilesSpawner.profiles"),
        (("ProfilesSpawner", "GPUProfilesSpawner"), "c.GPUProfilesSpawner.profiles"),
        ((), "c.GPUProfilesSpawner.profiles"),
    ],
    ids=["ours", "wrapspawner's", "both", "nowhere"],
)
def test_a_setting_is_called_what_the_admin_called_it(sections: tuple[str, ...], setting: str) -> None:
    """So that an error leads to the line of the configuration."""
    assert spawner_of(**{section: {"profiles": []} for section in sections}).configured_as("profiles") == setting


class Slow(SimpleLocalProcessSpawner):  # type: ignore[misc]
    """Another package's spawner, which leaves it to JupyterHub to give up a start."""

    async def start(self) -> None:
        await asyncio.sleep(60)


async def test_a_child_that_does_not_watch_its_own_time_is_given_up_by_its_spawner_of() -> None:
    """With the exception of JupyterHub's own time-out, which it leaves to the wrapper; the setting stays as it is."""
    spawner = spawner_of()
    spawner.prepare(request(kind="other", spawner_class=f"{__name__}.Slow", start_timeout=1))
    start = asyncio.ensure_future(spawner.start())
    read = spawner.start_timeout
    with pytest.raises(asyncio.TimeoutError):
        await start

    assert read == NO_TIME_LIMIT
    assert spawner.start_timeout == 1


ENVIRONMENT = {
    "configured": ({}, {"A": "server", "B": "server", "D": "profiles"}),
    "and what a hook adds": ({"H": "hook"}, {"A": "server", "B": "server", "D": "profiles", "H": "hook"}),
    "and what a hook changes": ({"A": "hook", "B": "hook"}, {"A": "hook", "B": "hook", "D": "profiles"}),
    "without what a hook removes": ({"A": None, "C": None}, {"B": "server", "D": "profiles"}),
}


@pytest.mark.parametrize(("hook", "expected"), ENVIRONMENT.values(), ids=ENVIRONMENT.keys())
async def test_the_variables_of_a_server_that_is_no_job(hook: dict[str, str | None], expected: dict[str, str]) -> None:
    """Those of its own class and of the hub's, and what a hook changes; those of jobs are not for it."""
    spawner: Any = spawner_of(
        Spawner={"environment": {"A": "server", "B": "server"}},
        GPUSlurmSpawner={"environment": {"B": "job", "C": "job"}},
        GPUProfilesSpawner={"environment": {"D": "profiles"}},
    )
    spawner.prepare(request(kind="other", spawner_class=ELSEWHERE))
    for name, value in hook.items():
        if value is None:
            del spawner.environment[name]
        else:
            spawner.environment[name] = value

    await spawner.start_server()

    assert settings(spawner, ["environment"]) == {"environment": expected}


REFUSED_HERE = {"root": "Servers are not started for this account", "no-such-person": "You have no account"}


@pytest.mark.parametrize(("name", "sentence"), REFUSED_HERE.items())
async def test_a_server_on_the_hubs_machine_needs_an_account_there(name: str, sentence: str) -> None:
    """Which must not be root's: a notebook would be the machine's administrator."""
    spawner: Any = spawner_of()
    spawner.user = SimpleNamespace(name=name, groups=[])
    spawner.prepare(request(kind="local"))

    with pytest.raises(HTTPError, match=sentence):
        await spawner.start()


async def test_no_kind_of_child_starts_in_a_hub_that_was_set_up_without_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page has no form, so the user could not have chosen the profile."""

    class Hub:
        """JupyterHub, as far as it is looked at."""

        tornado_settings: ClassVar[dict[str, object]] = {}

    monkeypatch.setattr(state, "this_hub", Hub)
    spawner = spawner_of()
    spawner.prepare(request(kind="other", spawner_class="jupyterhub.spawner.SimpleLocalProcessSpawner"))

    with pytest.raises(HTTPError, match="it is not set up correctly"):
        await spawner.start()


def test_no_name_of_ours_hides_a_private_one_of_jupyterhubs() -> None:
    """A method that is called ``_failed`` would end every start."""
    own = {name for spawner_class in (ServerJob, GPUSlurmSpawner, GPUProfilesSpawner) for name in vars(spawner_class)}
    private = {name for name in vars(Spawner) if name.startswith("_") and not name.startswith("__")}
    of_traitlets = set(vars(type("Plain", (HasTraits,), {})))

    assert own & private - of_traitlets == {"_apply_overrides"}  # which calls JupyterHub's
