"""batchspawner's ``batch_submit_cmd`` means what it meant there, and no server runs as root."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from batchspawner import SlurmSpawner
from jupyterhub.spawner import LocalProcessSpawner
from traitlets import Unicode
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site
from jupyterhub_gpuspawner.slurm.sbatch_options import options_in

AS_USER = "sudo -E -u {username} /opt/slurm/bin/sbatch --parsable --gres=gpu:1 --account=proj -p gpu --mail-type=END"
SITE: dict[str, Any] = {"exec_prefix": "", "batch_submit_cmd": AS_USER, "req_nprocs": "2", "req_partition": "cpu"}
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the tests' account is not root")


class OfTheSite(GPUSlurmSpawner):
    """A site's own class, which has the command as a value of its own."""

    exec_prefix = Unicode("")
    batch_submit_cmd = Unicode(AS_USER)
    req_nprocs = Unicode("2")


class Plainly(GPUSlurmSpawner):
    """The same, without traits."""

    exec_prefix = ""
    batch_submit_cmd = AS_USER
    req_nprocs = Unicode("2")


def spawner_of(cls: type[GPUSlurmSpawner], **settings: Any) -> Any:
    """The spawner of a person's server, where the site sets these for ``SlurmSpawner``."""
    return Site(Config({"SlurmSpawner": Config(settings)}), cls).spawner("ada")


def options_of(spawner: Any) -> dict[str, str]:
    """What the job's script asks of Slurm, of the last option of each kind, without what it always has."""
    options = dict(options_in(spawner.batch_job(SOMEBODY).script))
    names = ("account", "clusters", "cpus-per-task", "gres", "mail-type", "partition", "time")
    return {name: options[name] for name in names if name in options}


ASKED = {"account": "proj", "cpus-per-task": "2", "gres": "gpu:1", "mail-type": "END", "partition": "gpu"}


@pytest.mark.parametrize(
    ("cls", "settings"), [(GPUSlurmSpawner, SITE), (OfTheSite, {}), (Plainly, {})], ids=["section", "class", "plainly"]
)
def test_the_command_is_prefix_folder_and_options(cls: type[GPUSlurmSpawner], settings: dict[str, Any]) -> None:
    """They win over the site's own request, as sbatch's command line over its script."""
    spawner = spawner_of(cls, **settings)
    spawner.check()
    spawner.check_accounts()

    assert spawner.as_user() == ("sudo", "-E", "-u", "ada")
    assert spawner.connection().client.installation.bin_dir == "/opt/slurm/bin"
    assert spawner.expected_identity().owner == "ada"
    assert options_of(spawner) == ASKED


def test_a_folder_that_is_set_and_a_cluster_of_the_command() -> None:
    """``slurm_bin_dir`` stays; ``-M`` is the cluster of every command."""
    spawner = spawner_of(GPUSlurmSpawner, **{**SITE, "batch_submit_cmd": "/a/sbatch -M two"}, slurm_bin_dir="/b")
    installation = spawner.connection().client.installation
    assert (installation.bin_dir, installation.cluster) == ("/b", "two")


TEMPLATES = {
    "of text": "#!/bin/bash\n#SBATCH --partition=cpu\n#SBATCH --time=1:00:00\n\nset -e\n#SBATCH --time=9\n{cmd}\n",
    "of jinja2": "#!/bin/bash\n#SBATCH --time=1:00:00\n{% if True %}#SBATCH -p cpu\n{% endif %}\n{{cmd}}\n",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_they_win_over_the_lines_of_the_sites_own_script(template: str) -> None:
    """Of two options of a kind sbatch takes the last one."""
    spawner = spawner_of(GPUSlurmSpawner, **SITE, batch_script=template)
    asked = {name: value for name, value in ASKED.items() if name != "cpus-per-task"}  # for which it has no variable
    assert options_of(spawner) == {**asked, "time": "1:00:00"}


def test_they_win_over_a_profile() -> None:
    """In the script, and in what the hub says of it."""
    profile = (
        "A",
        "a",
        "batchspawner.SlurmSpawner",
        {"req_partition": "long", "req_ngpus": "4", "req_runtime": "2:00:00"},
    )
    config = Config({"SlurmSpawner": Config(SITE), "ProfilesSpawner": {"profiles": [profile]}})
    spawner = Site(config, GPUProfilesSpawner).spawner("ada")
    spawner.prepare(spawner.resolve({"profile": "a"}))

    resources = spawner.request.resources
    assert (resources.partition, resources.gpus, resources.time) == ("gpu", 1, 7200)
    assert options_of(spawner) == {**ASKED, "time": "2:00:00"}


ELSEWHERE = {
    "a pipeline": ({"SlurmSpawner": {"batch_submit_cmd": "sbatch | cat"}}, "'|' is the shell's"),
    "a class's": ({"BatchSpawnerBase": {"batch_submit_cmd": "submit"}}, "it does not run sbatch"),
    "no option": ({"SlurmSpawner": {"batch_submit_cmd": "sbatch --uid=0"}}, "the hub decides --uid itself"),
    "a cluster's": (
        {"GPUSlurmSpawner": {"clusters": {"a": {"batch_submit_cmd": "sudo -u x sbatch"}}}},
        "batch_submit_cmd is the same for all servers.",
    ),
    "a profile's": (
        {"ProfilesSpawner": {"profiles": [("B", "b", "SlurmSpawner", {"batch_submit_cmd": "sudo sbatch"})]}},
        "batch_submit_cmd is the same for all servers.",
    ),
}


@pytest.mark.parametrize(("config", "fault"), ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_a_hub_does_not_start_with_a_command_that_is_not_taken_over(config: dict[str, Any], fault: str) -> None:
    """Nothing of it is left out silently."""
    offered: dict[str, Any] = {"ProfilesSpawner": {"profiles": [("A", "a", "SlurmSpawner", {})]}}
    spawner = Site(Config({**offered, **config}), GPUProfilesSpawner).spawner("ada")
    with pytest.raises(ConfigError) as refused:
        spawner.check()
    assert fault in str(refused.value)


# --- as root ---

AS_ROOT: dict[str, dict[str, Any]] = {
    "no prefix": {"exec_prefix": ""},
    "a prefix that changes no account": {"exec_prefix": "env USER={username}"},
    "root by name": {"exec_prefix": "sudo -n -u root"},
    "root by default": {"exec_prefix": "sudo -E"},
    "root by number": {"exec_prefix": "setpriv --reuid=0"},
    "the command's": {"exec_prefix": "", "batch_submit_cmd": "env X=1 sbatch --parsable"},
    "a cluster's": {"exec_prefix": "sudo -u {username}", "clusters": {"a": {}, "b": {"exec_prefix": ""}}},
}


@ROOT
@pytest.mark.parametrize("settings", AS_ROOT.values(), ids=AS_ROOT.keys())
def test_servers_of_everybody_are_not_roots(settings: dict[str, Any]) -> None:
    """The hub does not start; one setting, which is for tests, allows it."""
    with pytest.raises(ConfigError, match=r"c\.\w+\.exec_prefix: servers of all users would run as root\. Set it to "):
        spawner_of(GPUSlurmSpawner, **settings).check_accounts()
    spawner_of(GPUSlurmSpawner, **settings, dangerously_run_servers_as_root=True).check_accounts()


OF_ROOT = "jupyterhub.spawner.SimpleLocalProcessSpawner"
LOCAL = {"display_name": "Here", "slug": "here", "kind": "local"}
OTHER = {"display_name": "There", "slug": "here", "kind": "other", "spawner_class": OF_ROOT}


@ROOT
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("profile", [LOCAL, OTHER], ids=["local", "other"])
async def test_servers_on_the_hubs_machine_are_not_roots(
    profile: dict[str, str], allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that are jobs, and those that a profile names the class of."""
    monkeypatch.setattr(LocalProcessSpawner, "start", started)
    settings = {"profiles": [profile], "local_spawner_class": OF_ROOT, "dangerously_run_servers_as_root": allowed}
    spawner = spawner_of(GPUProfilesSpawner, exec_prefix="runuser -u {username} --")
    spawner.update_config(Config({"GPUProfilesSpawner": Config(settings)}))
    spawner.prepare(spawner.resolve({"profile": "here"}))
    if allowed:
        spawner.check_accounts()
        assert await spawner.start_server() == "http://127.0.0.1:1"
        return
    with pytest.raises(ConfigError, match=r"local_spawner_class: servers of all users would run as root\. Simple"):
        spawner.check_accounts()
    with pytest.raises(ConfigError, match=r"profile here: servers of all users would run as root\. Simple"):
        await spawner.start_server()


async def started(_self: object) -> str:
    """In place of JupyterHub's, without a process."""
    return "http://127.0.0.1:1"


ACCOUNTS = ("runuser -u {username} --", "sudo -u nobody", "setpriv --reuid=65534", "/opt/as {username}", "ssh login")


@pytest.mark.parametrize("prefix", ACCOUNTS)
def test_a_prefix_that_may_change_the_account_is_kept(prefix: str) -> None:
    """The job then says whose it is."""
    spawner_of(GPUSlurmSpawner, exec_prefix=prefix).check_accounts()


@ROOT
@pytest.mark.parametrize("by", ["group", "hook"])
async def test_what_changes_at_a_start_is_looked_at_then(by: str) -> None:
    """A group's overrides, and a hook: nothing is submitted."""
    user = SimpleNamespace(name="daemon", groups=[], settings={KEY: HubState()}, url="/", spawners={})
    spawner: Any = GPUSlurmSpawner(config=Config(), user=user, exec_prefix="sudo -n -u {username}")
    spawner._username = "daemon"
    if by == "group":
        spawner._apply_overrides({"exec_prefix": "nice"})
    else:
        spawner.batch_submit_cmd = "sudo sbatch"
    with pytest.raises(ConfigError) as refused:
        await spawner._submit()
    assert refused.value.fault == (
        "servers of all users would run as root." if by == "group" else "batch_submit_cmd is the same for all servers."
    )


def test_batchspawners_default_is_known() -> None:
    """With it nothing is taken apart."""
    assert SlurmSpawner.batch_submit_cmd.default_value == "sbatch --parsable"
