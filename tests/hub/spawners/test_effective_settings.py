"""What is shown or tried reads settings as values; a start has them on its spawner, for the code of admins."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve

CLUSTERS: dict[str, Any] = {
    "juniper": {"req_partition": "a100"},
    "cedar": {"exec_prefix": "ssh cedar sudo -n -u {username}", "req_partition": "k80"},
}
PROFILES: list[dict[str, Any]] = [
    {
        "display_name": "On cedar",
        "slug": "cedar",
        "slurm": {"cluster": "cedar"},
        "traits": {"req_prologue": "module load cuda", "environment": {"OF": "profile"}, "log_dir": "/logs"},
    },
]


class SiteSpawner(GPUProfilesSpawner):
    """An admin's subclass, as sites have had them since batchspawner: methods that read and set ``self.req_...``."""

    read: dict[str, Any]

    def get_args(self) -> list[str]:
        """Tell the server its partition."""
        return [*super().get_args(), f"--partition={self.req_partition}"]


def hook(spawner: SiteSpawner) -> None:
    """A ``pre_spawn_hook``."""
    spawner.read = {name: getattr(spawner, name) for name in ("req_partition", "exec_prefix", "req_prologue")}
    spawner.req_nice = "7"
    spawner.req_epilogue = f"echo {spawner.req_prologue}"


def spawner_of() -> Any:
    """A spawner of a hub with two clusters and a hook."""
    settings = {"GPUSlurmSpawner": Config({"clusters": CLUSTERS, "environment": {"OF": "site", "BY": "site"}})}
    return SiteSpawner(config=Config(settings), profiles=PROFILES, pre_spawn_hook=hook)


def request(spawner: GPUProfilesSpawner, **changed: Any) -> JobRequest:
    """The request for the profile on cedar, with other settings of its own."""
    return resolve(
        parse_profiles([PROFILES[0] | changed]),
        {},
        username="ada",
        groups=(),
        server_name="",
        now=datetime(2026, 11, 28, 10),
        defaults=spawner.defaults(),
    )


async def test_nothing_is_set_on_a_spawner_for_what_is_shown_or_tried() -> None:
    """Of the other cluster and of a profile that is not chosen, each is a value."""
    spawner = spawner_of()
    changes: list[str] = []
    spawner.observe(lambda change: changes.append(change.name))
    tried = spawner.settings_of(request(spawner))

    assert (tried.requests["req_partition"], tried.exec_prefix) == ("k80", CLUSTERS["cedar"]["exec_prefix"])
    assert (tried.req_prologue, tried.log_dir) == ("module load cuda", "/logs")
    assert {name: job.partition for name, job in spawner.defaults().items()} == {"juniper": "a100", "cedar": "k80"}
    assert [*spawner.connections()] == ["juniper", "cedar"]
    assert spawner.effective("cedar", {"environment": {"OF": "profile"}}).environment == {"OF": "profile", "BY": "site"}
    with pytest.raises(ConfigError, match="memory_policy"):
        spawner.settings_of(request(spawner, traits={"memory_policy": "most"}))
    spawner.check()
    assert changes == []
    with pytest.raises(AttributeError, match="are values"):
        spawner.effective("cedar").exec_prefix = ""


async def test_an_admins_own_code_reads_and_changes_what_is_in_effect_in_its_own_start() -> None:
    """Its hook's settings reach the job; the next start has the site's again, and what it then chooses."""
    spawner = spawner_of()
    spawner.prepare(request(spawner))
    await spawner.run_pre_spawn_hook()
    job = spawner.job_settings()

    assert spawner.read == {
        "req_partition": "k80",
        "exec_prefix": CLUSTERS["cedar"]["exec_prefix"],
        "req_prologue": "module load cuda",
    }
    assert (job.requests["req_nice"], job.req_epilogue) == ("7", "echo module load cuda")
    assert job.args == ("--partition=k80",)
    assert spawner.environment == {"OF": "profile", "BY": "site"}
    spawner.clear_state()
    assert (spawner.req_partition, spawner.req_prologue) == ("a100", "")
    assert spawner.environment == {"OF": "site", "BY": "site"}
