"""Servers that claim their GPUs: on simulated nodes, and what NVML says is in use."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.extensions.claims.carried import MODULE
from jupyterhub_gpuspawner.extensions.claims.node import claim
from jupyterhub_gpuspawner.extensions.claims.node.claim import Claimant, name_of
from jupyterhub_gpuspawner.node.grant import UNMANAGED, ControllerAnswers
from jupyterhub_gpuspawner.node.hardware import Reader
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, load
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument, Step
from tests.standins.nvml import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyterhub_gpuspawner.node.child import Say
    from tests.node.conftest import StandinNvml

MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"
K80, DGX1, MIG = (load(str(MACHINES / f"{name}.json")) for name in ("k80-2socket", "dgx1", "a100-mig"))


pytestmark = pytest.mark.usefixtures("own_descriptors")


class Server(Claimant):
    """A server on a node of a Slurm that knows of no GPUs, or that gave this job some."""

    def __init__(
        self, folder: Path, node: NodeTopology, gpus: int | None, environ: dict[str, str] | None = None
    ) -> None:
        plan = LaunchPlan(gpus=gpus, choose=Step(f"{MODULE}:Claimant", {"folder": str(folder)}))
        slurm = ControllerAnswers({}, job="", node="Gres=(null)")
        super().__init__(plan, {"SLURM_JOB_ID": "7", **(environ or {})}, slurm=slurm, topology=node)

    def placement(self) -> PlacementDocument:
        return self.place()[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def gpus_and_problems(server: Server) -> tuple[str, tuple[str, ...]]:
    """CUDA_VISIBLE_DEVICES, and the problems."""
    placement = server.placement()
    return server.environ["CUDA_VISIBLE_DEVICES"], placement.problems


def test_servers_on_one_node_get_different_gpus(folder: Path) -> None:
    """Each gets the best of what is left; the last are told what is missing, and see no GPU of others."""
    assert [gpus_and_problems(Server(folder, K80, gpus)) for gpus in (1, 2, 2, 1)] == [
        ("0", ()),
        ("2,3", ()),
        ("1", ("GPU 0,2-3 is claimed by other servers.", "The profile promises 2 GPUs; only 1 available.")),
        ("", ("GPU 0-3 is claimed by other servers.", "The profile promises 1 GPU; only 0 available.")),
    ]


def test_a_job_claims_within_what_slurm_granted(folder: Path) -> None:
    """On a node that a job has whole, its servers share the granted GPUs and no others."""
    granted = {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "2,3", "SLURM_GPUS_ON_NODE": "2"}
    first, second, third = (Server(folder, K80, 1, granted) for _ in range(3))
    assert [gpus_and_problems(first)[0], gpus_and_problems(second)[0], gpus_and_problems(third)[0]] == ["2", "3", ""]


def test_a_local_server_without_a_claim_sees_no_gpu(folder: Path) -> None:
    """Outside Slurm too, GPUs claimed by others are hidden."""
    servers = [Server(folder, K80, 3) for _ in range(3)]
    for server in servers:
        del server.environ["SLURM_JOB_ID"]
    assert [gpus_and_problems(server)[0] for server in servers] == ["0,1,2", "3", ""]


def test_an_unfit_folder_costs_the_gpu_and_not_the_server(folder: Path) -> None:
    """If no claim can be made, there is no GPU, and the reason is in the report."""
    assert gpus_and_problems(Server(folder / "none", K80, 1)) == (
        "",
        (
            f"No GPU was claimed: the claims folder {folder}/none: No such file or directory; "
            f"create it with: install -d -o root -m 1777 {folder}/none.",
            "The profile promises 1 GPU; only 0 available.",
        ),
    )


def test_names_of_gpus() -> None:
    """All jobs use the same name of a GPU: its bus id, since a driver that hangs gives no UUID."""
    assert name_of(K80, 0, "g1") == f"g1-{K80.gpus[0].pci}"
    assert name_of(MIG, 2, "m1") == f"m1-{MIG.gpus[2].pci}+{MIG.gpus[2].uuid}"
    assert name_of(NodeTopology(gpus=(Gpu(0, uuid="GPU-1"), Gpu(1))), 1, "g1") == "g1-1"


@pytest.mark.parametrize(
    ("used", "failed", "visible", "problems"),
    [
        ({K80.gpus[0].uuid: "2 processes"}, "", "1", ("GPU 0 is skipped: it is in use by 2 processes.",)),
        (
            {gpu.uuid: "9000 MiB of memory" for gpu in K80.gpus},
            "",
            "",
            (
                *[f"GPU {n} is skipped: it is in use by 9000 MiB of memory." for n in range(4)],
                "The profile promises 1 GPU; only 0 available.",
            ),
        ),
        (
            {},
            "NVML is not available: gone.",
            "0",
            ("GPUs in use were recognised only by their claims: NVML is not available: gone.",),
        ),
    ],
)
def test_gpus_in_use_are_left_out(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    used: dict[str, str],
    failed: str,
    visible: str,
    problems: tuple[str, ...],
) -> None:
    """A process without a claim may use a GPU too; if that cannot be found out, only claims count."""
    monkeypatch.setattr(claim, "in_use", lambda *_: (used, failed))
    real = NodeTopology(gpus=K80.gpus, links=K80.links)
    server = Server(folder, real, 1)
    assert gpus_and_problems(server) == (visible, problems)
    assert UNMANAGED not in server.problems


@pytest.mark.parametrize(
    ("work", "answer"),
    [
        (lambda say: say(used={"GPU-1": "1 process"}, failed=""), ({"GPU-1": "1 process"}, "")),
        (lambda _: 1 / 0, ({}, "asking the driver failed.")),
        (lambda _: time.sleep(60), ({}, "the driver did not respond in time.")),
    ],
)
def test_a_driver_that_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[Say], object], answer: object
) -> None:
    """The driver is asked in a child process with a deadline."""
    monkeypatch.setattr(claim, "ask_drivers", lambda say, *_: work(say))
    assert claim.in_use(0.3, NodeTopology()) == answer


class OfAnotherMaker(Reader):
    """Knows what uses three GPUs that NVML does not know."""

    def in_use(self, topology: NodeTopology, root: str) -> list[tuple[str, int, int, int]]:  # noqa: ARG002
        return [("0000:c1:00.0", 2, 283, 65536), ("0000:c6:00.0", 0, 283, 65536), ("0000:c9:00.0", 0, 9000, 65536)]


def test_a_reader_of_another_maker_s_gpus_is_asked_in_nvml_s_place() -> None:
    """Processes count, and memory beyond what an idle GPU has."""
    used = {"0000:c1:00.0": "2 processes", "0000:c9:00.0": "9000 MiB of memory"}
    assert claim.in_use(20, NodeTopology(), [Reader({}), OfAnotherMaker({})]) == (used, "")


_ASK = (
    "import json; from jupyterhub_gpuspawner.extensions.claims.node import claim; "
    "from jupyterhub_gpuspawner.placement.topology import NodeTopology; "
    "print(json.dumps(claim.in_use(50, NodeTopology())))"
)


@pytest.fixture
def ask(standin: StandinNvml) -> Callable[[str], Any]:
    """What is in use, over the stand-in."""
    return lambda text: standin.run(_ASK, text)[0]


def test_nvml_tells_processes_and_memory(ask: Callable[[str], Any]) -> None:
    """Processes count; without any, more memory than an idle GPU has; each MIG device is judged separately."""
    text = describe(DGX1) + "used 0 -1 300 2\nused 1 -1 1024 0\nused 2 -1 1025 0\nused 3 -1 0 1\n"
    assert ask(text) == [
        {DGX1.gpus[0].uuid: "2 processes", DGX1.gpus[2].uuid: "1025 MiB of memory", DGX1.gpus[3].uuid: "1 process"},
        "",
    ]
    assert ask(describe(MIG) + "used 2 3 20 1\n") == [{MIG.gpus[3].uuid: "1 process"}, ""]


def test_calls_that_fail_tell_nothing_is_in_use(ask: Callable[[str], Any]) -> None:
    """If one call is not supported the other is used; without any answer, a GPU does not count as in use."""
    used = describe(DGX1) + "used 0 -1 9000 2\n"
    assert ask(f"{used}fail nvmlDeviceGetComputeRunningProcesses_v3 3 -1\n") == [
        {DGX1.gpus[0].uuid: "9000 MiB of memory"},
        "",
    ]
    blind = "".join(
        f"fail {call} 999 -1\n"
        for call in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
    )
    assert ask(used + blind) == [{}, ""]


def test_without_a_driver_it_is_not_known(ask: Callable[[str], Any]) -> None:
    """The report says why NVML does not answer."""
    assert ask("fail nvmlInitWithFlags 9 -1\n") == [{}, "NVML is not available: nvmlInit_v2 failed: Driver Not Loaded."]
