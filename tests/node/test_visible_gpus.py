"""The GPUs that CUDA shows to a server are those that Slurm granted, whatever is left of Slurm's variables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from jupyterhub_gpuspawner.node import placing
from jupyterhub_gpuspawner.node.grant import ControllerAnswers
from jupyterhub_gpuspawner.node.placing import Launch
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jupyterhub_gpuspawner.wire.documents import PlacementDocument

WHOLE = tuple(Gpu(n, f"GPU-{n}0{n}", f"0000:{n:02x}:00.0") for n in range(8))
SLICED = (
    *(Gpu(0, f"MIG-0{n}", "0000:00:00.0", mig="3g.40gb") for n in range(2)),
    *(Gpu(1, f"MIG-1{n}", "0000:01:00.0", mig="3g.40gb") for n in range(2)),
)
"""Two GPUs in slices; Slurm counts the slices."""
MIXED = (WHOLE[0], *(replace(gpu, index=1) for gpu in SLICED[2:]), replace(WHOLE[2], index=2))
"""One of three GPUs is in slices."""


def cuda_shows(environ: Mapping[str, str], openable: tuple[Gpu, ...]) -> list[str]:
    """UUIDs of the devices that CUDA has, by its documentation; ``openable`` are those that the process may open.

    An entry is a number among them in the order of their bus ids, or the beginning of one UUID. The first invalid one
    ends the list. Numbers mean nothing to it where a GPU is in slices.
    """
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return [gpu.uuid for gpu in openable]
    shown: list[str] = []
    for entry in text.split(","):
        if entry.isdigit():
            matches = openable[int(entry) :][:1] if not any(gpu.mig for gpu in openable) else ()
        else:
            matches = tuple(gpu for gpu in openable if entry and gpu.uuid.startswith(entry))
        if len(matches) != 1:
            break
        shown.append(matches[0].uuid)
    return shown


@dataclass(frozen=True)
class Node:
    """A job on a node: what the process may open, and what the launcher reads of the hardware."""

    granted: tuple[int, ...]
    """Slurm's indices."""
    cgroup: bool
    """Whether a device cgroup keeps the job from opening other GPUs."""
    reading: str
    """``nvml``; ``old nvml``, which counts GPUs that it refuses; ``sysfs``, ``file``; or those without UUIDs."""
    gpus: tuple[Gpu, ...] = WHOLE
    uuids: bool = False
    """Slurm writes UUIDs (``Flags=env_uuid``)."""

    @property
    def mine(self) -> tuple[Gpu, ...]:
        return tuple(self.gpus[index] for index in self.granted)

    @property
    def openable(self) -> tuple[Gpu, ...]:
        return self.mine if self.cgroup else self.gpus

    @property
    def topology(self) -> NodeTopology:
        if self.reading == "nvml":
            numbers = list(dict.fromkeys(gpu.index for gpu in self.openable))
            gpus = tuple(replace(gpu, index=numbers.index(gpu.index)) for gpu in self.openable)
            return NodeTopology(gpus=gpus, source="nvml+sysfs")
        if self.reading == "old nvml":
            return NodeTopology(gpus=self.openable, source="nvml+sysfs")
        source, _, without = self.reading.partition(" ")
        gpus = tuple(replace(gpu, uuid="") for gpu in self.gpus) if without else self.gpus
        return NodeTopology(gpus=gpus, source=source)

    def slurms_variables(self) -> dict[str, str]:
        """Those that Slurm may set (gres.conf(5), "Flags"; sbatch(1), "OUTPUT ENVIRONMENT VARIABLES")."""
        indices = ",".join(map(str, self.granted))
        names = ",".join(map(str, range(len(self.granted)))) if self.cgroup else indices
        uuids = ",".join(gpu.uuid for gpu in self.mine)
        if any(gpu.mig for gpu in self.mine):
            names = uuids
        return {
            "CUDA_VISIBLE_DEVICES": uuids if self.uuids else names,
            "GPU_DEVICE_ORDINAL": names,
            **dict.fromkeys(("ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"), names),
            **dict.fromkeys(("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"), indices),
            **dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS"), str(len(self.granted))),
        }

    def answer(self) -> str:
        indices = ",".join(map(str, self.granted))
        return f"Nodes=n1 CPU_IDs= Mem=1 GRES=gpu:{len(self.granted)}(IDX:{indices})\n"

    def launch(self, environ: Mapping[str, str], *, answered: bool) -> tuple[dict[str, str], PlacementDocument]:
        """The server's environment, and what its card is told."""
        slurm = ControllerAnswers({}, job=self.answer() if answered else "", node="Gres=gpu:8" if answered else "")
        plan = LaunchPlan(gpus=len(self.granted), memory_policy="none", set_threads=False)
        launch = Launch(plan, {"SLURM_JOB_ID": "7", **environ}, slurm=slurm, topology=self.topology)
        document, _ = launch.place()
        return dict(launch.environ), document


@pytest.fixture(autouse=True)
def nothing_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """These nodes have no CPUs, and no memory."""
    monkeypatch.setattr(placing, "allowed_cpus", tuple)
    monkeypatch.setattr(placing, "bind_memory", lambda *_: ("none", ()))


READINGS = ("nvml", "old nvml", "sysfs", "sysfs without", "file", "file without")
NODES = {
    f"{name}, {'device cgroup' if cgroup else 'no cgroup'}, {reading}": Node(granted, cgroup, reading, gpus)
    for name, granted, gpus in (
        ("5,7", (5, 7), WHOLE),
        ("1,2", (1, 2), WHOLE),
        ("0", (0,), WHOLE),
        ("6", (6,), WHOLE),
        ("all", tuple(range(8)), WHOLE),
        ("one slice", (1,), SLICED),
        ("slices of two GPUs", (1, 2), SLICED),
        ("a slice beside whole GPUs", (2,), MIXED),
        ("a whole GPU beside slices", (3,), MIXED),
    )
    for cgroup in (False, True)
    for reading in READINGS
}
NODES |= {
    f"UUIDs, {'device cgroup' if cgroup else 'no cgroup'}, {reading}": Node((5, 7), cgroup, reading, uuids=True)
    for cgroup in (False, True)
    for reading in READINGS
}


OTHERS = ("ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURM_GPUS")
"""Not about NVIDIA's GPUs, or of the whole job: they are set and unset together."""


def subsets(variables: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Each way to unset some of them."""
    units = [OTHERS, *((name,) for name in variables if name not in OTHERS)]
    for count in range(len(units) + 1):
        for kept in combinations(units, count):
            yield {name: variables[name] for unit in kept for name in unit}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES.keys())
def test_whichever_variables_are_unset_cuda_shows_what_slurm_granted_or_the_card_says_that_it_may_not(
    node: Node,
) -> None:
    """A setup line, a module, or gres.conf's ``no_gpu_env``; slurmctld answers or not.

    Where it is not known how CUDA counts, the server keeps what it would have had without a launcher.
    """
    mine = {gpu.uuid for gpu in node.mine}
    for kept in subsets(node.slurms_variables()):
        for answered in (True, False):
            case = f"{sorted(kept)}, slurmctld {'answers' if answered else 'is silent'}"
            environ, card = node.launch(kept, answered=answered)

            shown = set(cuda_shows(environ, node.openable))

            if card.problems:
                assert shown == set(cuda_shows(kept, node.openable)), case
                continue
            assert shown == mine, case
            assert len(card.gpus) == len(mine), case
            assert {gpu.uuid for gpu in card.gpus} <= {*mine, ""}, case


class Noted(dict[str, str]):
    """An environment that notes which of its variables are asked for."""

    asked: set[str]

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)


WHERE = {"SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_CPUS_ON_NODE", "SLURM_JOB_PARTITION", "SLURM_JOB_END_TIME"}
"""About the job, its node, and its CPUs."""


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("cgroup", [True, False])
def test_no_variable_of_slurm_s_is_read_that_these_tests_do_not_unset(answered: bool, cgroup: bool) -> None:
    """Of those with which sbatch(1), srun(1) and gres.conf(5) tell a job what it has."""
    node = Node((5, 7), cgroup, "nvml")
    for kept in subsets(node.slurms_variables()):
        environ = Noted({"SLURM_JOB_ID": "7", **kept})
        environ.asked = set()
        slurm = ControllerAnswers({}, job=node.answer() if answered else "", node="Gres=gpu:8" if answered else "")
        Launch(LaunchPlan(gpus=2, set_threads=False), environ, slurm=slurm, topology=node.topology).place()

        of_slurm = {name for name in environ.asked if name.startswith("SLURM") or name in node.slurms_variables()}
        assert of_slurm - WHERE <= node.slurms_variables().keys(), sorted(kept)


@pytest.mark.parametrize("node", [node for node in NODES.values() if "nvml" in node.reading], ids=str)
def test_whichever_variable_is_changed_cuda_shows_no_other_gpu_and_the_card_says_what_is_missing(node: Node) -> None:
    """By a line of the site, or left over from another step: emptied, of another form, of other GPUs."""
    mine, variables = {gpu.uuid for gpu in node.mine}, node.slurms_variables()
    for name, value in variables.items():
        for written in ("", " ", "garbage", "-1", "99", "3", "0-7", ",".join(reversed(value.split(",")))):
            for answered in (True, False):
                environ, card = node.launch({**variables, name: written}, answered=answered)
                shown = set(cuda_shows(environ, node.openable))
                case = f"{name}={written!r}, slurmctld {'answers' if answered else 'is silent'}"
                assert shown <= mine, case
                assert shown == mine or card.problems, case
                on_card = {gpu.uuid for gpu in card.gpus if gpu.pci}
                assert on_card == shown or (card.problems and not on_card), case


@pytest.mark.parametrize("node", [node for node in NODES.values() if "nvml" in node.reading], ids=str)
def test_where_nvml_was_asked_any_trace_of_the_grant_is_enough(node: Node) -> None:
    """Slurm's indices in a variable, or slurmctld's answer: then the card has no problem to tell."""
    for kept in subsets(node.slurms_variables()):
        _, card = node.launch(kept, answered=True)
        assert card.problems == (), sorted(kept)
    for name in ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"):
        _, card = node.launch({name: node.slurms_variables()[name]}, answered=False)
        assert card.problems == (), name


NO_CGROUP, CGROUP = Node((5, 7), False, "nvml"), Node((5, 7), True, "nvml")
ONE_TWO = Node((1, 2), True, "nvml")
SLICES = Node((1, 2), False, "nvml", SLICED)
ONLY_BOTH = "CUDA_VISIBLE_DEVICES is {}, but Slurm granted GPU {}; only GPUs in both are used."
HIDDEN = "Slurm granted GPU 5,7, but none is visible to this job."
SHORT = "The profile promises 2 GPUs; only {} available."
WRITTEN = {
    "a copy of SLURM_JOB_GPUS": (NO_CGROUP, "5,7", "5,7", ["5", "7"], ()),
    "a copy of SLURM_JOB_GPUS, in a cgroup": (CGROUP, "5,7", "0,1", ["5", "7"], ()),
    "the same, where one is a number in both countings": (ONE_TWO, "1,2", "0,1", ["1", "2"], ()),
    "in the other order": (NO_CGROUP, "7,5", "5,7", ["5", "7"], ()),
    "in the other order, in a cgroup": (CGROUP, "1,0", "0,1", ["5", "7"], ()),
    "one left out": (NO_CGROUP, "7", "7", ["7"], (ONLY_BOTH.format("7", "5,7"), SHORT.format(1))),
    "one left out, in a cgroup": (CGROUP, "1", "1", ["7"], (ONLY_BOTH.format("1", "5,7"), SHORT.format(1))),
    "one left out, whose number is another's index": (
        ONE_TWO,
        "1",
        "1",
        ["2"],
        (ONLY_BOTH.format("1", "1-2"), SHORT.format(1)),
    ),
    "somebody else's": (NO_CGROUP, "5,6", "5", ["5"], (ONLY_BOTH.format("5,6", "5,7"), SHORT.format(1))),
    "UUIDs": (NO_CGROUP, "GPU-505,GPU-707", "GPU-505,GPU-707", ["5", "7"], ()),
    "UUIDs in the other order, in a cgroup": (CGROUP, "GPU-707,GPU-505", "GPU-505,GPU-707", ["5", "7"], ()),
    "more UUIDs than were granted": (
        NO_CGROUP,
        "GPU-606,GPU-505,GPU-707",
        "GPU-505,GPU-707",
        ["5", "7"],
        (ONLY_BOTH.format("GPU-606,GPU-505,GPU-707", "5,7"),),
    ),
    "a UUID of another node": (CGROUP, "GPU-9", "GPU-9", [], ("No GPU on this node matches GPU-9.",)),
    "empty": (NO_CGROUP, "", "", [], (HIDDEN, SHORT.format(0))),
    "Slurm's word for none": (CGROUP, "NoDevFiles", "", [], (HIDDEN, SHORT.format(0))),
    "-1": (CGROUP, "-1", "", [], (HIDDEN, SHORT.format(0))),
    "CUDA stops at -1": (NO_CGROUP, "5,-1,7", "5", ["5"], (ONLY_BOTH.format("5", "5,7"), SHORT.format(1))),
    "MIG devices": (SLICES, "MIG-01,MIG-10", "MIG-01,MIG-10", ["01", "10"], ()),
    "MIG devices in the other order": (SLICES, "MIG-10,MIG-01", "MIG-01,MIG-10", ["01", "10"], ()),
    "MIG devices by Slurm's index": (SLICES, "1,2", "MIG-01,MIG-10", ["01", "10"], ()),
    "a MIG device that was not granted": (
        SLICES,
        "MIG-00,MIG-01,MIG-10",
        "MIG-01,MIG-10",
        ["01", "10"],
        (ONLY_BOTH.format("MIG-00,MIG-01,MIG-10", "1-2"),),
    ),
}


@pytest.mark.parametrize(("node", "written", "visible", "on_card", "problems"), WRITTEN.values(), ids=WRITTEN.keys())
def test_what_a_line_of_the_site_has_written_there_is_read_as_cuda_does(
    node: Node, written: str, visible: str, on_card: list[str], problems: tuple[str, ...]
) -> None:
    """The card has the GPUs that CUDA shows, and what is missing; the best ring is in the order of the numbers."""
    environ, card = node.launch({**node.slurms_variables(), "CUDA_VISIBLE_DEVICES": written}, answered=True)

    assert environ["CUDA_VISIBLE_DEVICES"] == visible
    assert [gpu.uuid for gpu in card.gpus if gpu.pci] == cuda_shows(environ, node.openable)
    assert [gpu.uuid[4] + gpu.uuid[5:] * bool(gpu.mig) for gpu in card.gpus if gpu.pci] == on_card
    assert card.problems == problems
