"""``gpuspawner show``: the complete script, or the reason why there is none."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import socket
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.extension import Extension
from jupyterhub_gpuspawner.site import jobs
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.site.jobs import jobs_of
from tests.cli.runner import cli_runner, run

GOLDEN = Path(__file__).parents[1] / "data" / "scripts" / "show.sh"
ME = pwd.getpwuid(os.getuid())
SITE = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.extensions = []
c.Spawner.cmd = ["/sw/jupyter/bin/jupyterhub-singleuser"]
c.Spawner.args = ["--debug"]
c.GPUSlurmSpawner.hub_name = "site"
c.GPUSlurmSpawner.log_dir = "/var/log/jupyter/{username}"
c.GPUSlurmSpawner.port_range = "20000-20999"
c.GPUSlurmSpawner.req_homedir = "/home/{username}"
c.GPUSlurmSpawner.req_partition = "gpu"
c.GPUSlurmSpawner.req_runtime = "8:00:00"
c.SlurmSpawner.req_account = "course42"
c.GPUProfilesSpawner.profiles = [
    {
        "display_name": "Course",
        "allow": {"groups": ["course"]},
        "slurm": {"gpus": 1, "gpu_type": "a100", "cpus": 8, "memory": "32G", "extra": ["--mail-type=END"]},
        "environment": {"modules": ["CUDA/12.4"], "variables": {"COURSE": "it's 42"}},
        "placement": {"policy": "restricted"},
        "profile_options": {
            "gpus": {"range": {"min": 1, "max": 4, "sets": "slurm.gpus"}},
            "image": {"choices": {"old": {}, "new": {"environment": {"conda": "torch"}}}},
        },
    },
    {"display_name": "Open"},
    {"display_name": "Test server", "slug": "test", "kind": "local"},
]
"""


def test_a_script_that_no_hub_submits_says_so(tmp_path: Path) -> None:
    """An account with uid 0 has no servers."""
    shown = run(tmp_path, SITE, "show", "open", "--user", "root")

    assert shown.stdout.startswith("#!")
    assert shown.stderr == (
        "note: no hub submits this: 'root' is an account of uid 0 (root); servers are never started as root. Keep it "
        "from signing in: c.Authenticator.blocked_users.\n"
    )


def test_the_script_is_shown_whole(tmp_path: Path) -> None:
    """Site, profile and choice in one script; nothing but the script is on standard output."""
    shown = run(
        tmp_path,
        SITE,
        "show",
        "course",
        *("--user", "ada", "--group", "course", "--server", "second", "--option", "gpus=2", "--option", "image=new"),
    )
    launcher = re.compile(r"(?<=printf '%s\\n' '\n)[A-Za-z0-9+/=\n]+(?=\n' \)\n)")
    script, launchers = launcher.subn("(the launcher)", shown.stdout)

    assert (shown.exit_code, shown.stderr) == (0, "")
    assert launchers == 1
    assert script == GOLDEN.read_text()


def test_home_and_name_are_the_accounts_own(tmp_path: Path) -> None:
    """Without req_homedir the home folder comes from the account database."""
    lines = SITE.replace("c.GPUSlurmSpawner.req_homedir", "# c.GPUSlurmSpawner.req_homedir")
    shown = run(tmp_path, lines, "show", "open", "--user", ME.pw_name)

    assert shown.exit_code == 0
    assert f"#SBATCH --chdir={ME.pw_dir}\n" in shown.stdout
    assert f"#SBATCH --output=/var/log/jupyter/{ME.pw_name}/jupyterhub-%j.log\n" in shown.stdout


NOT_SHOWN: dict[str, tuple[tuple[str, ...], int, str]] = {
    "an option without a value": (("open", "--user", "ada", "--option", "gpus"), 2, "'gpus' must be NAME=VALUE"),
    "an option that is not offered": (
        ("open", "--user", "ada", "--option", "gpus=1"),
        1,
        "gpuspawner: Open has no option 'gpus'. It has no options.",
    ),
    "a group that the user is not in": (
        ("course", "--user", "ada"),
        1,
        "gpuspawner: You cannot use Course now: it is reserved for the group course. "
        "You can choose: Open, Test server.",
    ),
    "a profile that is no job": (
        ("test", "--user", "ada"),
        1,
        "gpuspawner: Profile 'test' is not a Slurm job and has no batch script.",
    ),
    "no user": (("open",), 2, "Missing option '--user'"),
    "an unknown profile": (
        ("nope", "--user", "ada"),
        1,
        "There is no profile 'nope'. You can choose: Open (open), Test server (test).",
    ),
    "a value out of bounds": (
        ("course", "--user", "ada", "--group", "course", "--option", "gpus=9"),
        1,
        "gpus: '9' is not allowed: it must be a number from 1 to 4.",
    ),
}


@pytest.mark.parametrize(("words", "code", "sentence"), NOT_SHOWN.values(), ids=NOT_SHOWN.keys())
def test_what_cannot_be_shown_is_said(tmp_path: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    """Exit code 2 for a wrong call, 1 for a wrong choice; standard output stays empty."""
    shown = run(tmp_path, SITE, "show", *words)

    assert (shown.exit_code, shown.stdout) == (code, "")
    assert sentence in shown.stderr


BROKEN = {
    "an account that does not exist": (
        SITE.replace("c.GPUSlurmSpawner.req_homedir", "# c.GPUSlurmSpawner.req_homedir"),
        "There is no account 'no-such-account' on the hub's machine. ",
    ),
    "a template without the server": (
        SITE + "c.SlurmSpawner.batch_script = '#!/bin/bash\\necho hello\\n'",
        "batch_script: the template has no {cmd} outside of its comments. ",
    ),
    "a broken profile": (
        SITE + "c.GPUProfilesSpawner.profiles[1]['slurm'] = {'memory': 'lots'}",
        "c.GPUProfilesSpawner.profiles[1].slurm.memory: 'lots' is not a valid amount of memory: ",
    ),
    "another spawner": (
        "c.JupyterHub.spawner_class = 'jupyterhub.spawner.LocalProcessSpawner'",
        "c.JupyterHub.spawner_class: 'jupyterhub.spawner.LocalProcessSpawner' is not a spawner of this package. Set it",
    ),
    "a spawner that is not there": (
        "c.JupyterHub.spawner_class = 'no.such.Spawner'",
        "c.JupyterHub.spawner_class: No module named 'no'",
    ),
}


@pytest.mark.parametrize(("lines", "sentence"), BROKEN.values(), ids=BROKEN.keys())
def test_a_site_whose_script_cannot_be_written_is_told_why(tmp_path: Path, lines: str, sentence: str) -> None:
    """The message names the setting or field, and the fault."""
    shown = run(tmp_path, lines, "show", "open", "--user", "no-such-account")

    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith(f"gpuspawner: {sentence}")


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    """The message names the file and the option for another one."""
    shown = cli_runner().invoke(main, ["show", "open", "--user", "ada", "--config", str(tmp_path / "none.py")])

    assert shown.exit_code == 1
    assert shown.stderr == (
        f"gpuspawner: there is no file {tmp_path}/none.py. Name the hub's configuration file with --config; "
        "`gpuspawner check` says how to write one.\n"
    )


HOST = socket.gethostname()
HUBS = {
    "as JupyterHub is by default": ("", "http://127.0.0.1:8081/hub/api", "/", HOST),
    "an address and a port": (
        "c.JupyterHub.hub_ip = '10.0.0.10'\nc.JupyterHub.hub_port = 9999\n",
        "http://10.0.0.10:9999/hub/api",
        "/",
        f"{HOST}-9999",
    ),
    "another name for nodes": (
        "c.JupyterHub.hub_ip = '0.0.0.0'\nc.JupyterHub.hub_connect_ip = 'hub.example'\n",
        "http://hub.example:8081/hub/api",
        "/",
        HOST,
    ),
    "an address as a URL, below a path": (
        "c.JupyterHub.hub_bind_url = 'http://10.0.0.10:9999'\nc.JupyterHub.base_url = '/jupyter'\n",
        "http://10.0.0.10:9999/jupyter/hub/api",
        "/jupyter/",
        f"{HOST}-9999",
    ),
    "a URL for nodes": (
        "c.JupyterHub.hub_connect_url = 'https://hub.example/x'\n",
        "https://hub.example/hub/api",
        "/",
        HOST,
    ),
    "a URL for servers alone": (
        "c.Spawner.hub_connect_url = 'http://10.9.9.9:1'\n",
        "http://10.9.9.9:1/hub/api",
        "/",
        HOST,
    ),
}


@pytest.mark.parametrize(("lines", "address", "base", "name"), HUBS.values(), ids=HUBS.keys())
def test_the_hub_is_the_configured_one(tmp_path: Path, lines: str, address: str, base: str, name: str) -> None:
    """Its address for servers, its path, and its name in the job's comment, which has a port that is not the usual."""
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(SITE.replace("c.GPUSlurmSpawner.hub_name", "# c.GPUSlurmSpawner.hub_name") + lines)
    site = load_site(config)
    environ = site.spawner("ada").get_env()
    (job,) = asyncio.run(jobs_of(site, {"profile": "open"}, user="ada"))
    script = job.script

    assert (environ["JUPYTERHUB_API_URL"], environ["JUPYTERHUB_BASE_URL"]) == (address, base)
    assert environ["JUPYTERHUB_OAUTH_CALLBACK_URL"] == f"{base}user/ada/oauth_callback"
    assert f"#SBATCH --comment=jupyterhub-gpuspawner/{name}/ada/" in script


OLD = """
c.SlurmSpawner.batch_script = '''#!/bin/bash
#SBATCH --partition={partition}
#SBATCH --export={keepvars}
{cmd}
'''
"""


def test_show_prints_an_admins_own_template_filled_in(tmp_path: Path) -> None:
    """The script contains the names of the server's variables, but not their values."""
    shown = run(tmp_path, SITE + OLD, "show", "open", "--user", "ada")

    assert shown.exit_code == 0
    assert "#SBATCH --partition=gpu\n" in shown.stdout
    assert "JUPYTERHUB_API_TOKEN" in shown.stdout
    assert "JUPYTERHUB_API_TOKEN=" not in shown.stdout


CLUSTERS = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUSlurmSpawner.req_homedir = "/home/{username}"
c.GPUSlurmSpawner.clusters = {"juniper": {"req_partition": "gpu"}, "cedar": {"req_partition": "k80"}}
c.GPUProfilesSpawner.profiles = [
    {"display_name": "One", "slug": "one", "profile_options": {"where": {"choices": {
        "a": {"slurm": {"cluster": "juniper"}},
        "b": {"slurm": {"cluster": "cedar"}},
    }}}},
    {"display_name": "Two", "slug": "two", "slurm": {"cluster": "cedar"}},
]
"""
SHOWN = {
    "the profile's own cluster": (("two",), "k80", ""),
    "the default choice's": (("one",), "gpu", ""),
    "the one that is chosen": (("one", "--option", "where=b"), "k80", ""),
    "the choice that leads to a cluster": (("one", "--cluster", "cedar"), "k80", ""),
    "a cluster on which the profile is not": (
        ("two", "--cluster", "juniper"),
        "",
        "gpuspawner: Profile 'two' starts no server on juniper with this choice.\n",
    ),
    "no cluster": (
        ("one", "--cluster", "oak"),
        "",
        "gpuspawner: there is no cluster 'oak'. Clusters are juniper, cedar.\n",
    ),
}


@pytest.mark.parametrize(("words", "partition", "sentence"), SHOWN.values(), ids=SHOWN.keys())
def test_the_script_is_that_of_the_jobs_cluster(
    tmp_path: Path, words: tuple[str, ...], partition: str, sentence: str
) -> None:
    """With the settings that the cluster has as its own."""
    shown = run(tmp_path, CLUSTERS, "show", *words, "--user", "ada")

    assert (re.findall("^#SBATCH --partition=(.*)", shown.stdout, re.MULTILINE), shown.stderr) == (
        [partition] if partition else [],
        sentence,
    )


def test_an_extension_that_fails_keeps_no_profile_of_others_from_being_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named in the log, and what the others offer is shown, or that nobody offers the profile."""

    def fails(*_arguments: object) -> list[object]:
        raise ValueError("no file")

    own = Extension("own", "", requests=".own:REQUESTS")
    monkeypatch.setattr(jobs, "load_each", lambda *_arguments: iter([(own, fails), (own, lambda *_arguments: [])]))
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(SITE)
    with pytest.raises(RequestError, match="lost"):
        asyncio.run(jobs_of(load_site(config), {"profile": "lost"}, user="ada"))

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "The extension own is left out: .own:REQUESTS failed: ValueError: no file"
    ]
