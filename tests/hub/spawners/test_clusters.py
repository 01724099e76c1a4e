"""Several clusters behind one hub: which settings a server's cluster has, at its start and after a restart."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub.site.slurm_settings import CONNECTION
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.submission import cancel_surely
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.slurm.commands import DEFAULT_TIMEOUT

CEDAR = {
    "query_prefix": "ssh cedar",
    "exec_prefix": "ssh cedar sudo -n -u {username}",
    "wrapper_dir": "/opt/gpuspawner",
    "req_partition": "k80",
}
CLUSTERS = {"juniper": {"slurm_conf": "/etc/juniper/slurm.conf"}, "cedar": CEDAR}
PROFILES: list[dict[str, Any]] = [
    {"display_name": "Either", "slug": "either", "slurm": {"gpus": 1}, "profile_options": {
        "gpu": {"choices": {
            "a100": {"display_name": "A100 on juniper", "slurm": {"cluster": "juniper"}, "default": True},
            "k80": {"display_name": "K80 on cedar", "slurm": {"cluster": "cedar", "gpu_type": "k80"}},
        }},
    }},
    {"display_name": "Plain", "slug": "plain"},
]  # fmt: skip
SETTINGS = ("cluster", "exec_prefix", "query_prefix", "req_partition", "slurm_conf")


def spawner_of(
    clusters: dict[str, Any] | None = None, hub: HubState | None = None, **settings: Any
) -> GPUProfilesSpawner:
    """A spawner of a hub with these clusters."""
    own = {"req_partition": "gpu", **({"clusters": clusters} if clusters else {}), **settings}
    user = SimpleNamespace(name="ada", groups=[], settings={KEY: hub or HubState()}, spawners={})
    return GPUProfilesSpawner(config=Config({"GPUSlurmSpawner": Config(own)}), profiles=PROFILES, user=user)


def request(spawner: GPUProfilesSpawner, **options: object) -> JobRequest:
    """The request for the first profile with these options."""
    return resolve(
        parse_profiles(PROFILES),
        {"profile": "either", **options},
        username="ada",
        groups=(),
        server_name="",
        now=datetime(2026, 11, 25, 10),
        defaults=spawner.defaults(),
    )


def settings(spawner: GPUProfilesSpawner) -> dict[str, Any]:
    """What a spawner is set to, as far as it differs between the clusters."""
    return {name: getattr(spawner, name) for name in SETTINGS}


ON_JUNIPER = {
    "cluster": "juniper",
    "exec_prefix": "sudo -n -E -u {username}",
    "query_prefix": "",
    "req_partition": "gpu",
    "slurm_conf": "/etc/juniper/slurm.conf",
}
ON_CEDAR = {
    "cluster": "cedar",
    "exec_prefix": "ssh cedar sudo -n -u {username}",
    "query_prefix": "ssh cedar",
    "req_partition": "k80",
    "slurm_conf": "",
}


def test_a_choice_decides_the_cluster_and_the_next_one_decides_anew() -> None:
    """A setting that a cluster does not have has the value of the site, not that of the first cluster."""
    spawner = spawner_of(CLUSTERS)
    at_first = settings(spawner)
    spawner.prepare(request(spawner, gpu="k80"))
    chosen = settings(spawner)
    spawner.clear_state()

    assert (at_first, chosen, settings(spawner)) == (ON_JUNIPER, ON_CEDAR, ON_JUNIPER)


def test_a_job_has_the_defaults_of_its_cluster() -> None:
    """Its partition is that of the site there."""
    spawner = spawner_of(CLUSTERS)
    requested = [request(spawner, gpu=gpu).resources for gpu in ("a100", "k80")]

    assert [(job.cluster, job.partition) for job in requested] == [("juniper", "gpu"), ("cedar", "k80")]
    assert spawner.settings_of(request(spawner, gpu="k80")).exec_prefix == CEDAR["exec_prefix"]
    assert spawner.site_settings().exec_prefix == ON_JUNIPER["exec_prefix"]


def test_a_hub_without_clusters_has_one_that_has_no_name() -> None:
    """Nothing changes for it; a profile that names a cluster cannot be started, and says why."""
    spawner = spawner_of()
    (plain,) = spawner.defaults().items()

    assert (plain[0], plain[1].partition, spawner.cluster, spawner.get_state()) == ("", "gpu", "", {})
    with pytest.raises(RequestError, match=r"There is no cluster 'cedar'. This hub names no clusters."):
        request(spawner, gpu="k80")


def test_a_restarted_hub_asks_the_cluster_of_the_server() -> None:
    """By its settings as they are today."""
    spawner = spawner_of(CLUSTERS)
    spawner.prepare(request(spawner, gpu="k80"))
    spawner.watch.load({"job_id": "7"})
    state = json.loads(json.dumps(spawner.get_state()))
    moved = {**CLUSTERS, "cedar": {**CEDAR, "query_prefix": "ssh cedar2"}}
    restarted = spawner_of(moved)
    restarted.load_state(state)

    assert settings(restarted) == {**ON_CEDAR, "query_prefix": "ssh cedar2"}
    restarted.clear_state()
    assert settings(restarted) == ON_JUNIPER


async def test_a_cluster_has_one_connection_with_its_own_time_out() -> None:
    """Whichever spawner has it, so that each look asks the cluster once."""
    clusters = {**CLUSTERS, "cedar": {**CEDAR, "slurm_timeout": 30.0}}
    hub = HubState()
    spawner, other = spawner_of(clusters, hub), spawner_of(clusters, hub)
    spawner.prepare(request(spawner, gpu="k80"))
    own = spawner.connection()
    spawner.load_state(json.loads(json.dumps(spawner.get_state())))

    assert own.client.installation.timeout == 30
    assert all(connection is own for connection in (spawner.connection(), other.connections()["cedar"]))
    assert other.connection().client.installation.timeout == DEFAULT_TIMEOUT


async def test_a_job_of_the_same_number_on_another_cluster_is_another_job() -> None:
    """Clusters count their jobs each for itself: a cancellation on one says nothing of the others."""
    hub = HubState()
    clusters = spawner_of(CLUSTERS, hub).connections()
    never = asyncio.Event()

    async def cancel(_job_id: str) -> None:
        await never.wait()

    work = asyncio.create_task(cancel_surely(clusters["juniper"], "12", cancel))
    await asyncio.sleep(0)
    cancelling = {name: cluster.cancelling for name, cluster in spawner_of(CLUSTERS, hub).connections().items()}

    assert cancelling == {"juniper": {"12"}, "cedar": set()}
    never.set()
    await work
    assert cancelling == {"juniper": set(), "cedar": set()}


REFUSED = {"batch_submit_cmd", *CONNECTION, "clusters"} - {"req_cluster"}
"""Settings that say where a cluster is, which no profile may set; ``req_cluster`` is read as ``slurm.cluster``."""
VALUES: tuple[Any, ...] = (
    *(
        True,
        False,
        7,
        7.5,
        "preferred",
        "restricted",
        "bind",
        "gpus",
        "cedar",
        "20000-20100",
        "0:30:00",
        "UNLIMITED",
        "gpu:a100:2",
        "--hold",
        "7",
    ),
    *(["--hold"], ["7"], [7], {"gpu": "90min"}, {"elm": {}}, {"A": "b"}, {}, [], None, len),
)
"""One of them is valid for each setting."""


def profile_with(name: str, value: Any, hub: HubState | None = None) -> GPUProfilesSpawner:
    """A spawner on the second of two clusters, each with its own time-out, by a profile with this setting."""
    clusters = {"juniper": {"slurm_timeout": 20.0}, "cedar": {**CEDAR, "slurm_timeout": 30.0}}
    spawner = spawner_of(clusters, hub)
    profile = PROFILES[0] | {"traits": {name: value}}
    spawner.prepare(
        resolve(
            parse_profiles([profile]),
            {"profile": "either", "gpu": "k80"},
            username="ada",
            groups=(),
            server_name="",
            now=datetime(2026, 11, 25, 10),
            defaults=spawner.defaults(),
        )
    )
    return spawner


def set_by_a_profile(name: str, hub: HubState | None = None) -> GPUProfilesSpawner | str:
    """The spawner of a server whose profile has another value for a setting; the refusal, where it may have none."""
    default, refusals = getattr(spawner_of(), name), list[str]()
    for value in VALUES:
        if value == default:
            continue
        try:
            return profile_with(name, value, hub)
        except ConfigError as error:
            refusals.append(str(error))
    return next((text for text in refusals if "is the same for all" in text), refusals[0])


@pytest.mark.parametrize("name", sorted(GPUSlurmSpawner.class_trait_names(config=True, of_the_hub=None)))
async def test_a_cluster_is_watched_once_whatever_a_profile_sets(name: str) -> None:
    """By the connection that all servers there share, with the site's time-out there."""
    hub = HubState()
    shared = profile_with("req_nice", "7", hub).connections()
    spawner = set_by_a_profile(name, hub)
    if name in REFUSED:
        assert f"{name} is the same for all servers" in str(spawner)
        return

    assert isinstance(spawner, GPUProfilesSpawner), spawner
    assert spawner.connections() == shared
    assert spawner.connection() is shared["cedar"]
    assert [connection.client.installation.timeout for connection in shared.values()] == [20.0, 30.0]


async def test_a_hook_or_a_group_makes_no_second_watcher_of_a_cluster() -> None:
    """Their ``slurm_timeout`` says for how long this one server waits."""
    hub = HubState()
    plain, spawner = spawner_of(CLUSTERS, hub), spawner_of(CLUSTERS, hub)
    spawner.slurm_timeout = 60.0

    assert (spawner.connections(), spawner.connection()) == (plain.connections(), plain.connection())


def test_a_profile_that_is_no_longer_valid_does_not_move_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """After a restart, too, it is on its own cluster."""
    spawner = spawner_of(CLUSTERS)
    spawner.prepare(request(spawner, gpu="k80"))
    spawner.watch.load({"job_id": "7"})
    restarted = spawner_of(CLUSTERS)
    restarted.profiles = [PROFILES[0] | {"traits": {"port_range": "1-2"}}]
    restarted.load_state(json.loads(json.dumps(spawner.get_state())))

    assert "A running server of" in caplog.text
    assert (restarted.job_id, settings(restarted)) == ("7", ON_CEDAR)


def test_a_server_on_a_cluster_that_was_removed_is_found_by_the_settings_that_it_had() -> None:
    """It is not lost."""
    spawner = spawner_of(CLUSTERS)
    spawner.prepare(request(spawner, gpu="k80"))
    spawner.watch.load({"job_id": "7"})
    restarted = spawner_of({"juniper": CLUSTERS["juniper"]})
    restarted.load_state(spawner.get_state())

    values = settings(restarted)
    assert (restarted.job_id, values) == ("7", {**ON_CEDAR, "req_partition": "gpu", "slurm_conf": ""})
    restarted.clear_state()
    assert settings(restarted) == ON_JUNIPER


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        (
            {"cedar": {"exec_prefx": ""}},
            "clusters: cedar: 'exec_prefx' is no setting of a cluster; did you mean exec_prefix?",
        ),
        ({"cedar": {"hub_name": "x"}}, "clusters: cedar: 'hub_name' is no setting of a cluster"),
        ({"ce dar": {}}, "clusters: 'ce dar'"),
        ({"cedar": "ssh"}, "clusters: 'cedar': 'ssh' must be"),
    ],
)
def test_what_is_no_cluster_is_refused(clusters: dict[str, Any], message: str) -> None:
    """With the cluster, the setting, and what would be right."""
    with pytest.raises(TraitError, match=message.replace("?", r"\?")):
        spawner_of(clusters)


def test_a_value_that_no_start_could_use_is_found_at_its_cluster() -> None:
    """When the hub starts, and by `check`."""
    spawner = spawner_of({"juniper": {}, "cedar": {"slurm_timeout": "long"}})
    with pytest.raises(ConfigError, match=r"c.GPUSlurmSpawner.clusters: cedar: .*slurm_timeout"):
        spawner.check()


@pytest.mark.parametrize("names", ["juniper,cedar", "all", "-a"])
def test_a_command_asks_one_cluster(names: str) -> None:
    """Slurm would print the jobs of several as if they were one's."""
    with pytest.raises(TraitError, match=f"req_cluster: '{names}' must be the name of one cluster"):
        spawner_of(req_cluster=names)
