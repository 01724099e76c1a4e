"""What ``scontrol`` says of a job on its node, and of that node."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.node import grant
from jupyterhub_gpuspawner.node.grant import ControllerAnswers
from jupyterhub_gpuspawner.units import NodeAllocation
from tests.node.conftest import dies


@pytest.mark.parametrize(
    ("line", "gpus", "cpus"),
    [
        ("Nodes=g1 CPU_IDs=0-3 Mem=4000 GRES=gpu:k80:2(IDX:0-1)", (0, 1), (0, 1, 2, 3)),
        ("Nodes=g[1-2] CPU_IDs=0,12 Mem=1 GRES=gpu:k80:1(IDX:3)", (3,), (0, 12)),
        ("Nodes=g1 CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:1),gpu:1g.10gb:2(IDX:4-5)", (1, 4, 5), (0,)),
        ("Nodes=g1 CPU_IDs=0 Mem=1 GRES=shard:3(0/4,3/4)", (1,), (0,)),
        ("Nodes=g1 CPU_IDs=0 Mem=1 GRES=", (), (0,)),
        ("Nodes=g1 CPU_IDs=0 Mem=1 GRES=craynetwork:1", (), (0,)),
        ("Nodes=g1 CPU_IDs=0 Mem=1 GRES=gpu:2(IDX:odd)", (), (0,)),
        ("Nodes=g1 CPU_IDs=odd Mem=1 GRES=", (), ()),
        ("Nodes=g2 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:0)", (), ()),
        ("JobName=x Nodes=g1 CPU_IDs=7 Mem=1 GRES=gpu:1(IDX:7)", (), ()),
        ("slurm_load_jobs error: Invalid job id specified", (), ()),
        ("", (), ()),
    ],
)
def test_only_this_nodes_own_line_counts(line: str, gpus: tuple[int, ...], cpus: tuple[int, ...]) -> None:
    """Values that cannot be read are unknown."""
    granted = grant.allocation_on("g1", f"JobId=7 JobName=x\n   NodeList=g1\n     {line}\n   MinCPUsNode=1\n")
    assert (granted.gpu_indices, granted.cpu_ids) == (gpus, cpus)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("Gres=gpu:k80:4(S:0-1)", True),
        ("Gres=shard:8,gpu:2", True),
        ("Gres=(null)", False),
        ("Gres=craynetwork:4", False),
        ("Gres=?!", None),
        ("", None),
    ],
)
def test_a_nodes_gpus_are_slurms_or_not(gres: str, expected: bool | None) -> None:
    """By its ``Gres=`` line; None where there is none that can be read."""
    text = f"NodeName=g1 Arch=x86_64 CoresPerSocket=12 \n   AvailableFeatures=gpu\n   {gres}\n   NodeAddr=127.0.0.1\n"

    assert grant.parse_node(text) is expected


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scontrol that takes what the real one takes from us, and nothing else; it writes down its process's id."""
    path = tmp_path / "scontrol"
    path.write_text(
        """#!/bin/sh
echo $$ >"$0.pid"
case "$*" in
"--local --details show job 17") printf 'JobId=17\\n     Nodes=g1 CPU_IDs=4-5 Mem=1 GRES=gpu:1(IDX:2)\\n' ;;
"--local --details show job 18") exec sleep infinity ;;
"--local --details show node g1") printf 'NodeName=g1\\n   Gres=gpu:4\\n' ;;
*) echo "scontrol: unknown: $*" >&2; exit 1 ;;
esac
"""
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return path


@pytest.mark.usefixtures("command")
def test_the_command_is_asked_about_this_job_and_node() -> None:
    """By the numbers that Slurm put into the job's environment."""
    environ = {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "g1"}

    assert (ControllerAnswers(environ).allocation().gpu_indices, ControllerAnswers(environ).allocation().cpu_ids) == (
        (2,),
        (4, 5),
    )
    assert ControllerAnswers(environ).hands_out_gpus() is True


def test_a_controller_that_is_silent_is_given_up(command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing known, and no command left."""
    monkeypatch.setattr(grant, "SECONDS", 0.5)

    assert ControllerAnswers({"SLURM_JOB_ID": "18", "SLURMD_NODENAME": "g1"}).allocation() == NodeAllocation("g1")
    assert dies(int(command.with_suffix(".pid").read_text()))


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_ID": "--help"}, {"SLURM_JOB_ID": "99"}])
def test_without_an_answer_nothing_is_known(environ: dict[str, str], command: Path) -> None:
    """No job number, an option in its place, an error, no such command."""
    assert ControllerAnswers(environ).allocation() == NodeAllocation("")
    assert ControllerAnswers(environ).hands_out_gpus() is None
    command.unlink()
    assert ControllerAnswers({"SLURM_JOB_ID": "17"}).allocation() == NodeAllocation("")
