"""What a site's hooks set on the spawner counts for the job, as with batchspawner, and before the profile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner
from traitlets import Unicode
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.migrate.template import DEFAULT_TEMPLATE, sbatch_options
from jupyterhub_gpuspawner.slurm.job import Account
from tests.fixtures.batchspawners import rendered, spawner_of

HOME = Account("ada", "/home/ada", "/bin/bash", 1000)
SITE = {"req_partition": "cpu", "req_nprocs": "2"}
PROFILE = {
    "display_name": "GPU",
    "slug": "gpu",
    "slurm": {"partition": "gpu", "gpus": 1, "gpu_type": "a100", "cpus": 4, "memory": "8G", "time": "2:00:00"},
}
THE_SAME = {
    "req_partition": "gpu",
    "req_gres": "gpu:a100:1",
    "req_nprocs": "4",
    "req_memory": "8G",
    "req_runtime": "2:00:00",
}
"""What the profile requests, as batchspawner's settings."""
TEMPLATE = DEFAULT_TEMPLATE.replace(
    "#!/bin/bash\n", "#!/bin/bash\n{% if account %}#SBATCH --account={{account}}\n{% endif %}", 1
)
REQUESTED = {"partition", "time", "mem", "gres", "cpus-per-task", "reservation", "account", "nice", "qos"}
Hook = Callable[..., Any]


def requested(script: str) -> dict[str, str]:
    """The options of sbatch with which a job asks for something."""
    return {name: value for name, value in sbatch_options(script).items() if name in REQUESTED}


async def started(
    monkeypatch: pytest.MonkeyPatch,
    *,
    profile: Mapping[str, Any] = PROFILE,
    site: Mapping[str, Any] = SITE,
    by: type[GPUProfilesSpawner] = GPUProfilesSpawner,
    **hooks: Hook,
) -> tuple[Any, Any]:
    """The spawner of a start up to its submission, and the job."""

    async def submitted(spawner: GPUSlurmSpawner) -> Any:
        return spawner.batch_job(HOME)

    monkeypatch.setattr(GPUSlurmSpawner, "start_server", submitted)
    monkeypatch.setattr(GPUSlurmSpawner, "get_env", lambda spawner: dict(spawner.environment))
    config = {"GPUSlurmSpawner": Config(site), "GPUProfilesSpawner": Config(profiles=[dict(profile)])}
    spawner: Any = by(config=Config(config), user=SimpleNamespace(name="ada", groups=[], settings={}))
    spawner.orm_spawner = None
    for name, hook in hooks.items():
        setattr(spawner, name, hook)
    spawner.clear_state()
    await spawner.run_auth_state_hook({"account": "physics"})
    await spawner.apply_group_overrides()
    if "apply_user_options" in hooks:
        await spawner._run_apply_user_options({})
    else:
        spawner.prepare(spawner.resolve({}))
    await spawner.run_pre_spawn_hook()
    return spawner, await spawner.start_server()


async def with_batchspawner(hook: Hook) -> str:
    """The script of batchspawner after the same hook."""
    spawner = spawner_of(batch_script=TEMPLATE, pre_spawn_hook=hook, **THE_SAME)
    result = spawner.run_pre_spawn_hook()
    if result is not None:
        await result
    return rendered(spawner)


def partition_and_memory(spawner: Any) -> None:
    spawner.req_partition, spawner.req_memory = "big", "64G"


def the_sites_own(spawner: Any) -> None:
    spawner.req_partition, spawner.req_nprocs = "cpu", "2"


def longer(spawner: Any) -> None:
    spawner.req_runtime = "1-00:00:00"


def account(spawner: Any) -> None:
    spawner.req_account = "physics"


def other_gpus(spawner: Any) -> None:
    spawner.req_gres = "gpu:v100:2"


def scratch_beside_gpus(spawner: Any) -> None:
    spawner.req_gres = f"{spawner.req_gres},scratch:10"


def no_gpus(spawner: Any) -> None:
    spawner.req_gres = ""


def no_memory(spawner: Any) -> None:
    spawner.req_memory = ""


def appended(spawner: Any) -> None:
    spawner.req_options += " --nice=7 --qos=short"


def reservation(spawner: Any) -> None:
    spawner.req_reservation = "course-7"


def by_what_it_reads(spawner: Any) -> None:
    if spawner.req_partition == "gpu":
        spawner.req_account = "of-gpus"
        spawner.req_nprocs = str(2 * int(spawner.req_nprocs))


async def later(spawner: Any) -> None:
    spawner.req_partition = "big"


def everything(spawner: Any) -> None:
    other_gpus(spawner)
    appended(spawner)
    account(spawner)
    longer(spawner)


HOOKS = [
    partition_and_memory,
    the_sites_own,
    longer,
    account,
    other_gpus,
    scratch_beside_gpus,
    no_gpus,
    no_memory,
    appended,
    reservation,
    by_what_it_reads,
    later,
    everything,
]


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_requests_what_it_does_with_batchspawner(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job that the profile requests, as of one that settings do; the request says the same as the script."""
    spawner, job = await started(monkeypatch, pre_spawn_hook=hook)

    assert requested(job.script) == requested(await with_batchspawner(hook))
    assert spawner.request.resources.partition == sbatch_options(job.script)["partition"]


@pytest.mark.parametrize("hook", [partition_and_memory, longer, account, other_gpus, reservation])
async def test_what_was_set_before_the_profile_counts_as_well(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an auth_state_hook, which JupyterHub runs before it applies the user's choice."""
    _, job = await started(monkeypatch, auth_state_hook=lambda spawner, _: hook(spawner))

    assert requested(job.script) == requested(await with_batchspawner(hook))


async def test_hooks_of_a_start_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later one reads what an earlier one has set, and has the last word."""

    def first(spawner: Any, _: object) -> None:
        spawner.req_account, spawner.req_runtime = "physics", "4:00:00"

    def second(spawner: Any) -> None:
        spawner.req_account += "-gpu"

    _, job = await started(monkeypatch, auth_state_hook=first, pre_spawn_hook=second)

    options = requested(job.script)
    assert (options["account"], options["time"]) == ("physics-gpu", "4:00:00")


class OwnStart(GPUProfilesSpawner):
    """A site's subclass."""

    async def start_server(self) -> Any:
        """As its start() does before it calls that of its base."""
        self.req_account = "physics"
        return await super().start_server()


async def test_a_sites_subclass_and_its_own_apply_user_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """They act on the spawner before its start as hooks do."""

    def apply(spawner: Any, _options: object) -> None:
        spawner.req_runtime = "4:00:00"

    _, job = await started(monkeypatch, by=OwnStart, apply_user_options=apply)

    options = requested(job.script)
    assert (options["account"], options["time"], options["partition"]) == ("physics", "4:00:00", "gpu")


async def test_one_more_gpu_is_of_the_profiles_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """req_ngpus counts GPUs; batchspawner's own template has no use for it."""

    def two(spawner: Any) -> None:
        spawner.req_ngpus = "2"

    _, job = await started(monkeypatch, pre_spawn_hook=two)
    assert requested(job.script)["gres"] == "gpu:a100:2"


async def test_commands_variables_and_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook's come before those of the profile, which it has read."""

    def hook(spawner: Any) -> None:
        spawner.cmd = ["nice", *spawner.cmd]
        spawner.args = [*spawner.args, "--debug"]
        spawner.environment["OMP_NUM_THREADS"] = "4"
        spawner.exec_prefix = "runuser -u ada --"
        spawner.req_prologue = "module load site"
        spawner.placement_policy = "none"
        spawner.port_range = "30000-30010"
        spawner.queue_timeout = "1:00"

    profile = {
        **PROFILE,
        "command": ["lab"],
        "environment": {"variables": {"OMP_NUM_THREADS": "1", "KEPT": "yes"}},
        "placement": {"policy": "restricted"},
        "port_range": [20000, 20010],
        "queue_timeout": "2:00:00",
    }
    spawner, job = await started(monkeypatch, profile=profile, pre_spawn_hook=hook)

    assert " -- nice lab --debug" in job.script.replace("'", "")
    assert "OMP_NUM_THREADS=" not in job.script
    assert "KEPT=" in job.script
    assert "module load site" in job.script
    assert "--gres-flags" not in job.script
    assert spawner.get_env()["OMP_NUM_THREADS"] == "4"
    assert spawner.as_user() == ("runuser", "-u", "ada", "--")
    assert spawner.request.profile.port_range is None
    assert spawner.request.profile.queue_timeout is None


async def test_a_hooks_own_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variables are what the hook and the profile request."""

    def hook(spawner: Any) -> None:
        spawner.batch_script = "#!/bin/bash\n#SBATCH --partition={partition} --time={runtime}\n{cmd}\n"
        spawner.req_partition = "big"

    _, job = await started(monkeypatch, pre_spawn_hook=hook)
    assert {name: requested(job.script)[name] for name in ("partition", "time")} == {
        "partition": "big",
        "time": "2:00:00",
    }


WRONG: dict[str, tuple[str, str]] = {
    "memory": ("req_memory", "4 bananas"),
    "lines": ("req_partition", "gpu\n#SBATCH --uid=0"),
    "a number": ("req_nprocs", "many"),
    "generic resources": ("req_gres", "gpu:two:three:four"),
    "the comment": ("req_options", "--comment=mine"),
}


@pytest.mark.parametrize(("name", "value"), WRONG.values(), ids=WRONG.keys())
async def test_what_cannot_be_requested_is_refused_by_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start fails, and its sentence for the admin names the hook's line."""
    with pytest.raises(ConfigError) as refused:
        await started(monkeypatch, pre_spawn_hook=lambda spawner: setattr(spawner, name, value))

    assert str(refused.value).startswith(f"a hook's spawner.{name}: ")


async def test_nothing_of_a_hook_stays_for_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what the profile has set as well, and pages show the site's settings meanwhile."""
    spawner, _ = await started(monkeypatch, pre_spawn_hook=everything)
    assert spawner.of_site("req_partition") == "cpu"

    spawner.pre_spawn_hook = None
    spawner.clear_state()
    spawner.prepare(spawner.resolve({}))
    job = await spawner.start_server()

    assert (spawner.of_hooks.settings, spawner.of_hooks.variables) == ({}, {})
    assert requested(job.script) == requested(await with_batchspawner(lambda _: None))


class Elsewhere(SimpleLocalProcessSpawner):  # type: ignore[misc]
    """Another package's spawner."""

    req_account = Unicode("none").tag(config=True)

    async def start(self) -> Any:
        """What it has."""
        return self.req_account, self.cmd, self.environment


async def test_a_server_that_is_no_job(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Its spawner gets what it has a setting for, before the profile's; of the rest the log says that it is lost."""

    def hook(spawner: Any) -> None:
        spawner.req_account, spawner.req_partition = "physics", "big"
        spawner.cmd = ["mine"]
        spawner.environment["A"] = "hook"

    traits = {"req_account": "theirs", "environment": {"A": "profile"}}
    profile = {
        "display_name": "E",
        "kind": "other",
        "spawner_class": f"{__name__}.Elsewhere",
        "command": ["theirs"],
        "traits": traits,
    }
    with caplog.at_level(logging.WARNING):
        _, (own, cmd, environment) = await started(monkeypatch, profile=profile, pre_spawn_hook=hook)

    assert (own, cmd, environment["A"]) == ("physics", ["mine"], "hook")
    assert [record.getMessage() for record in caplog.records] == [
        "The server of ada is no job: req_partition, set by a hook, has no effect"
    ]
