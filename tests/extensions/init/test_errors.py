"""What is said where ``gpuspawner init`` has nothing to write, and that it then writes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.cli.main import main
from tests.cli.runner import cli_runner
from tests.extensions.init.answers import command, commands, recorded_commands
from tests.slurm.recorded import recorded

if TYPE_CHECKING:
    from click.testing import Result

NODE = "NodeName=g1 CPUTot=8 CPUEfctv=8 Sockets=1 CoresPerSocket=8 RealMemory=32000 State=IDLE Gres=gpu:2"
PARTITION = "PartitionName=gpu State=UP Nodes=g1 MaxTime=08:00:00 AllowGroups=ALL AllowAccounts=ALL Default=YES"
CONFIG = "ClusterName = tiny\nPrivateData = none\n"
VERSION = "slurm-wlm 22.05.8\n"
NOISE = (
    "A start-up file of the shell (~/.bashrc, /etc/profile.d/*.sh) or a wrapper of the command prints it. Let it print "
    'only where a person looks: [ -t 1 ] && echo "...".'
)
NO_CONF = (
    "sinfo: fatal: Unable to process configuration file\n",
    "sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
    "sinfo: error: fetch_config: DNS SRV lookup failed\n"
    "sinfo: error: _establish_config_source: failed to fetch config\n"
    "sinfo: fatal: Could not establish a configuration source\n",
)
"""Of 22.05, and of newer ones."""
Folder = Callable[[Path], Path]


def answering(*, version: str = VERSION, node: str = f"{NODE}\n", partition: str = f"{PARTITION}\n") -> Folder:
    """Commands with these answers, by their folder."""
    return lambda folder: commands(folder, version=version, node=node, partition=partition, config=CONFIG)


def failing(text: str) -> Folder:
    """Commands of which scontrol fails with this text."""

    def make(folder: Path) -> Path:
        recorded_commands(folder, "24.11")
        command(folder, "scontrol", f"#!/bin/sh\nprintf %s {shlex.quote(text)} >&2\nexit 1\n")
        return folder

    return make


CASES: dict[str, tuple[Folder, int, str]] = {
    "no Slurm": (
        lambda folder: folder,
        3,
        "There is no Slurm on this machine: its command sinfo is not in {bin}. Run the command where sinfo works, name "
        'the folder of Slurm\'s commands with --slurm-bin-dir, or a login node with --login-node "ssh LOGIN-NODE".',
    ),
    "slurmctld is down": (
        failing(recorded("24.11", "ctld_down", "scontrol_node").stderr),
        3,
        "scontrol failed: slurmctld cannot be reached. Check `scontrol ping`.",
    ),
    "a login shell that prints": (
        answering(version=f"Welcome to tiny! Slurm 22.05 is here\n{VERSION}"),
        3,
        "The answer of `sinfo --version` does not begin with Slurm's words, but with 'Welcome to tiny! Slurm 22.05 is "
        f"here'. {NOISE}",
    ),
    "a wrapper that prints": (
        answering(node=f"scontrol: using cluster tiny\n{NODE}\n"),
        3,
        "The answer of `scontrol show node` does not begin with Slurm's words, but with 'scontrol: using cluster "
        f"tiny'. {NOISE}",
    ),
    "an answer without its end": (
        answering(partition=PARTITION[:40]),
        1,
        "The answer of `scontrol --local show partition -a -o` is cut off: it ends with 'PartitionName=gpu State=UP "
        "Nodes=g1 MaxT'. Run the command again, and look at what stands between it and Slurm.",
    ),
    "no partition is open": (
        answering(partition=PARTITION.replace("AllowAccounts=ALL", "AllowAccounts=phys,chem,bio") + "\n"),
        1,
        "no partition is open to everybody: gpu (accounts: phys, chem and 1 more). Name one with --partition, whoever "
        "may use it.",
    ),
    "Slurm hides its nodes": (
        failing("slurm_load_node error: Access/permission denied\n"),
        1,
        "Slurm does not show its nodes or partitions to this account (PrivateData). Run the command as root or as a "
        "Slurm operator.",
    ),
    "no nodes": (
        answering(node=""),
        1,
        "`scontrol show node` printed nothing.",
    ),
}


def init(folder: Path, bin_dir: Path, *words: str) -> Result:
    """Run the command."""
    return cli_runner().invoke(main, ["init", str(folder), "--slurm-bin-dir", str(bin_dir), *words])


@pytest.mark.parametrize(("make", "code", "text"), CASES.values(), ids=CASES.keys())
def test_the_fault_is_named_and_nothing_is_written(tmp_path: Path, make: Folder, code: int, text: str) -> None:
    """With what would be right, and an exit code that tells a silent Slurm from the rest."""
    bin_dir = make(tmp_path / "bin")

    done = init(tmp_path / "hub", bin_dir)

    assert (done.exit_code, done.stderr) == (code, f"gpuspawner: {text.format(bin=bin_dir)}\n")
    assert not (tmp_path / "hub").exists()


def test_a_partition_that_slurm_does_not_have_is_refused(tmp_path: Path) -> None:
    """With those that it has."""
    done = init(tmp_path / "hub", answering()(tmp_path / "bin"), "--partition", "gpus")

    assert (done.exit_code, done.stderr) == (
        1,
        "gpuspawner: --partition: Slurm has no partition gpus. Partitions are gpu.\n",
    )


@pytest.mark.parametrize("there", ["jupyterhub_config.py", "profiles/2-cpu.yaml", "profiles/site.yaml"])
def test_a_file_that_is_there_is_named_and_kept(tmp_path: Path, there: str) -> None:
    """Also another profile, beside which the new ones would be offered; none of the other files is written."""
    file = tmp_path / "hub" / there
    file.parent.mkdir(parents=True)
    file.write_text("mine")

    done = init(tmp_path / "hub", answering()(tmp_path / "bin"))

    assert (done.exit_code, done.stderr) == (
        1,
        f"gpuspawner: {file} is there already. Nothing was written. Name a new folder, or - to print the files.\n",
    )
    assert [path for path in (tmp_path / "hub").rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "mine"


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    """And kept."""
    file = tmp_path / "hub"
    file.write_text("mine")

    done = init(file, answering()(tmp_path / "bin"))

    assert (done.exit_code, done.stderr) == (
        1,
        f"gpuspawner: {file} is a file, not a folder. Name a new folder, or - to print the files.\n",
    )
    assert file.read_text() == "mine"


def test_gpus_without_a_type_are_said_to_be(tmp_path: Path) -> None:
    """The profile is written all the same."""
    done = init(tmp_path / "hub", answering()(tmp_path / "bin"))

    assert done.exit_code == 0
    assert (
        "- GPUs of g1 have no type in gres.conf, so Slurm cannot tell models apart. With Type= in its lines, each "
        'model gets a profile of its own: see the guide "Inspect a node, and write gres.conf".'
    ) in " ".join(done.stdout.split())
    assert "gpu_type" not in (tmp_path / "hub" / "profiles" / "1-gpu.yaml").read_text()


@pytest.mark.parametrize("words", ["sudo -u slurm", "ssh 'login"])
def test_a_login_node_is_reached_by_ssh(tmp_path: Path, words: str) -> None:
    """Any other command is refused before anything is run."""
    done = init(tmp_path / "hub", tmp_path, "--login-node", words)

    assert done.exit_code == 2
    assert "--login-node" in done.stderr


def test_slurm_is_asked_on_a_login_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ssh, here a stand-in that runs the command itself; the configuration then reaches Slurm through it."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    command(tmp_path, "ssh", '#!/bin/sh\nshift\nexec sh -c "$*"\n')
    bin_dir = answering()(tmp_path / "bin")

    done = init(tmp_path / "hub", bin_dir, "--login-node", "ssh login")
    config = (tmp_path / "hub" / "jupyterhub_config.py").read_text()

    assert done.exit_code == 0, done.stderr
    assert 'c.GPUSlurmSpawner.exec_prefix = "ssh login sudo -n -u {username}"\n' in config
    assert 'c.GPUSlurmSpawner.query_prefix = "ssh login"\n' in config
    assert 'follow the guide "Run the hub on a machine without Slurm"' in done.stdout


@pytest.mark.parametrize("name", ["sinfo", "scontrol"])
@pytest.mark.parametrize("stderr", NO_CONF)
def test_without_slurm_conf_its_option_is_named(tmp_path: Path, name: str, stderr: str) -> None:
    """Whichever command is the first to miss it; not the environment of a hub that is not there yet."""
    folder = recorded_commands(tmp_path / "bin", "24.11")
    command(folder, name, f"#!/bin/sh\nprintf %s {shlex.quote(stderr)} >&2\nexit 1\n")
    done = cli_runner().invoke(main, ["init", str(tmp_path / "hub"), "--slurm-bin-dir", str(folder)])

    assert (done.exit_code, done.stderr) == (
        3,
        f"gpuspawner: {name} found no slurm.conf on this machine. Name the file with --slurm-conf; if this machine is "
        'not part of the cluster, name a login node with --login-node "ssh LOGIN-NODE".\n',
    )


def test_check_names_the_command_where_nothing_is_configured(tmp_path: Path) -> None:
    """Before the lines that it prints for those who write a configuration by hand."""
    done = cli_runner().invoke(main, ["check", "--config", str(tmp_path / "jupyterhub_config.py")])

    assert "`gpuspawner init DIR` writes a configuration" in done.output
