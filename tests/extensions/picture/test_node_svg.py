"""The picture of a node: whole, legible in light and dark, safe, and the same in words."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from jupyterhub_gpuspawner.cli.nvidia_smi_matrix import TopoTextError, parse
from jupyterhub_gpuspawner.cli.topology import decoded
from jupyterhub_gpuspawner.extensions.picture import drawing, node
from jupyterhub_gpuspawner.extensions.picture.api import POLICY
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, load

HERE = Path(__file__).parents[2]
DEMO = HERE.parent / "jupyterhub_gpuspawner" / "demo" / "machines"


def machines() -> dict[str, NodeTopology]:
    """All machines: the demo's, the named ones, the recorded ones."""
    topologies = {
        path.stem: load(str(path)) for folder in (DEMO, HERE / "data" / "machines") for path in folder.glob("*.json")
    }
    for path in (HERE / "data" / "topo-m").glob("*.txt"):
        try:
            topologies[path.stem] = parse(decoded(path.read_bytes()))
        except TopoTextError:
            continue
    return topologies


MACHINES = machines()
K80 = MACHINES["k80-2socket"]


class Picture:
    """A parsed SVG: elements by class, and all text."""

    def __init__(self, text: str) -> None:
        self.root = ET.fromstring(text)  # noqa: S314 - our own, and that it can be read is what is tested
        self.all = [element for element in self.root.iter() if "class" in element.attrib]

    def of(self, *kinds: str) -> list[ET.Element]:
        """Elements that have all these classes."""
        return [element for element in self.all if set(kinds) <= set(element.attrib["class"].split())]

    def words(self) -> list[str]:
        """Every text in the picture."""
        return [element.text or "" for element in self.root.iter("{http://www.w3.org/2000/svg}text")]

    def box(self, element: ET.Element) -> tuple[float, float, float, float]:
        """Left, top, right, lower edge of a rectangle."""
        x, y, width, height = (float(element.attrib[key]) for key in ("x", "y", "width", "height"))
        return x, y, x + width, y + height


def picture_of(machine: NodeTopology, own_gpus: tuple[int, ...] = (), own_cpus: tuple[int, ...] = ()) -> Picture:
    return Picture(drawing.svg(machine, own_gpus=own_gpus, own_cpus=own_cpus, title="Node g1"))


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_device_is_drawn_once(name: str) -> None:
    """Each GPU is one box, each NIC near a GPU one pill, each core one square; own ones are highlighted."""
    machine = MACHINES[name]
    own = tuple(range(0, len(machine.gpus), 2))
    cpus = machine.gpus[0].cpus[:3] if machine.gpus else machine.numa_nodes[0].cpus[:3]
    drawn = picture_of(machine, own, cpus)
    assert (len(drawn.of("gpu")), len(drawn.of("gpu", "own"))) == (len(machine.gpus), len(own))
    assert len([word for word in drawn.words() if word.startswith("✓") and "CPUs" not in word]) == len(own)
    squares = set(map(tuple, (drawn.box(element) for element in drawn.of("core", "own"))))
    assert len(squares) - (1 if cpus else 0) == len(cpus)  # one more in the legend
    near_nics = [nic for nic, row in enumerate(machine.nic_links) if set(row) & {"PIX", "PXB", "PHB", "NODE"}]
    assert len(drawn.of("nic")) == len(near_nics)


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_nothing_overlaps_or_leaves_the_picture(name: str) -> None:
    """GPUs, NICs and NUMA nodes don't cover each other, and words stay inside (6 pixels a character at least)."""
    drawn = picture_of(MACHINES[name], (0,), (0, 1))
    width, height = float(drawn.root.attrib["width"]), float(drawn.root.attrib["height"])
    boxes = [drawn.box(element) for element in drawn.of("gpu") + drawn.of("nic") + drawn.of("node")]
    assert all(0 <= left < right <= width and 0 <= top < low <= height for left, top, right, low in boxes)
    for one, two in combinations(boxes, 2):
        assert one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
    for element in drawn.root.iter("{http://www.w3.org/2000/svg}text"):
        long = 5.9 * len(element.text or "")
        anchor = {"mid": 0.5, "end": 1.0}
        shift = sum(anchor.get(kind, 0) for kind in element.attrib["class"].split()) * long
        start = float(element.attrib["x"]) - shift
        assert start >= 0
        assert start + long <= width + 6, element.text
        assert float(element.attrib["y"]) < height


@pytest.mark.parametrize(
    ("name", "curves", "bars"),
    [("dgx1", 16, 0), ("a100-bridges", 4, 0), ("k80-2socket", 0, 0), ("dgx-a100", 0, 9), ("dgx2", 0, 17),
     ("a100-mig", 1, 0), ("cube-mesh-16", 40, 0)],
)  # fmt: skip
def test_nvlinks(name: str, curves: int, bars: int) -> None:
    """Each pair's NVLink is a curve, or one bar with a line from each GPU if all pairs have the same link."""
    shapes = [element.attrib["d"] for element in picture_of(MACHINES[name]).of("nv")]
    legend = len({word for row in MACHINES[name].links for word in row if word.startswith("NV")})
    assert (len([d for d in shapes if "C" in d]), len([d for d in shapes if "L" in d]) - legend) == (curves, bars)


def test_nvlinks_of_its_own_stand_out_and_more_links_are_thicker() -> None:
    """Of the job's three GPUs the three NVLinks are marked; two links are drawn thicker than one."""
    drawn = picture_of(MACHINES["dgx1v"], (0, 2, 3))
    widths = sorted({float(element.attrib["stroke-width"]) for element in drawn.of("nv")})
    assert [float(element.attrib["stroke-width"]) for element in drawn.of("nv", "own")].count(widths[1]) == 2
    assert len(drawn.of("nv", "own")) == 3


def test_a_screen_reader_is_told() -> None:
    """The picture is one image with a name and a description that both can be found by their ids."""
    root = picture_of(K80, (2, 3), (12, 13, 14, 15)).root
    named = {element.attrib["id"]: element.text for element in root if "id" in element.attrib}
    assert root.attrib["role"] == "img"
    assert [named[word] for word in root.attrib["aria-labelledby"].split()] == [
        "Node g1",
        "4 × K80, 2 packages, 2 NUMA nodes, 24 cores, 64 GiB of memory. Yours: GPU 2, GPU 3, CPUs 12-15.",  # noqa: RUF001
    ]


def test_gpus_that_a_device_cgroup_hides_are_counted() -> None:
    """The driver shows one of the four GPUs that the kernel lists."""
    shown = replace(
        K80,
        gpus=K80.gpus[:1],
        links=(("X",),),
        nics=(),
        nic_links=(),
        nic_numa=(),
        devices=tuple(g.pci for g in K80.gpus),
    )
    assert node.summary(shown, (0,)).startswith("1 × K80, 3 more GPUs hidden from this job, 2 packages, ")  # noqa: RUF001


def test_two_pictures_on_a_page_have_different_ids() -> None:
    """Two nodes, or one node for two servers, do not share ids."""
    ids = [re.findall(r' id="([^"]+)"', drawing.svg(K80, own_gpus=own, title="Node g1")) for own in ((0,), (1,))]
    assert not set(ids[0]) & set(ids[1])


def test_a_core_of_which_one_thread_is_its_own_is_filled_in_part() -> None:
    """Of a core with two siblings one is the job's: half of the square is filled."""
    machine = NodeTopology(numa_nodes=(NumaNode(0, (0, 1, 2, 3)),), siblings=((0, 2), (1, 3)))
    heights = [float(element.attrib["height"]) for element in picture_of(machine, (), (0, 1, 2)).of("core", "own")]
    assert heights[:2] == [11.0, 5.5]


def test_words_from_a_node_are_only_words() -> None:
    """Names that a node or a user chose can't become markup, and what XML does not allow can't break it."""
    bad = "</text><script>alert(1)</script>&\x00\x1b\"'"
    machine = replace(K80, gpus=tuple(replace(gpu, name=bad, mig=None) for gpu in K80.gpus), nics=(bad,))
    drawn = Picture(drawing.svg(machine, title=bad))
    assert {element.tag.rpartition("}")[2] for element in drawn.root.iter()} == {
        "svg", "title", "desc", "rect", "path", "text",
    }  # fmt: skip
    assert any(word.startswith("</text><script>") for word in drawn.words())


def test_the_style_of_a_picture_by_itself_is_the_one_that_its_policy_allows() -> None:
    """By its hash; the drawing in a page has none, since a site's policy may forbid it."""
    drawn = drawing.svg(K80)
    styles = re.findall("<style>(.*?)</style>", drawing.by_itself(drawn), re.DOTALL)
    policies = [
        f"default-src 'none'; style-src 'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'; sandbox"
        for style in styles
    ]

    assert "<style" not in drawn
    assert policies == [POLICY]


def test_positions_that_are_not_there_are_no_ones() -> None:
    """GPUs that the topology does not have are not marked."""
    assert picture_of(K80, (7,)).of("gpu", "own") == []


def colours(theme: str) -> dict[str, tuple[float, ...]]:
    """The colours of a theme by name, as linear light: those of the drawing by itself."""
    block = drawing.STYLE.splitlines()[theme == "dark"]
    palette = {}
    for name, code in re.findall(r"--([\w-]+):var\(--gs-[\w-]+,#([0-9a-f]+)", block):
        full = code if len(code) == 6 else "".join(2 * c for c in code)
        parts = [int(full[n : n + 2], 16) / 255 for n in (0, 2, 4)]
        palette[name] = tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return palette


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("one", "other", "least"),
    [("ink", "back", 4.5), ("ink", "panel", 4.5), ("ink", "own-box", 4.5),
     ("soft", "back", 4.5), ("soft", "panel", 4.5), ("soft", "own-box", 4.5),
     ("own", "back", 4.5), ("own", "panel", 4.5), ("own", "own-box", 4.5),
     ("nv", "back", 3), ("line", "back", 3), ("nic", "back", 3), ("own", "core", 3)],
)  # fmt: skip
def test_contrast(theme: str, one: str, other: str, least: float) -> None:
    """Words have the contrast of WCAG 2.2 (1.4.3), lines and marks theirs (1.4.11), in both themes."""
    light = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (colours(theme)[one], colours(theme)[other])]
    assert (max(light) + 0.05) / (min(light) + 0.05) >= least


@pytest.mark.parametrize(
    ("name", "own_gpus", "own_cpus", "rows"),
    [
        ("k80-2socket", (0, 1), (0, 1, 2, 3), [
            ("NUMA node 0", "package 0; CPUs 0-11; 12 cores; 32 GiB of memory; yours: CPUs 0-3"),
            ("NUMA node 1", "package 1; CPUs 12-23; 12 cores; 32 GiB of memory"),
            ("GPU 0, yours", "K80, 12 GB; NUMA node 0; PIX to GPU 1; SYS to GPU 2 and GPU 3"),
            ("GPU 1, yours", "K80, 12 GB; NUMA node 0; PIX to GPU 0; SYS to GPU 2 and GPU 3"),
            ("GPU 2", "K80, 12 GB; NUMA node 1; PIX to GPU 3; SYS to GPU 0 and GPU 1"),
            ("GPU 3", "K80, 12 GB; NUMA node 1; PIX to GPU 2; SYS to GPU 0 and GPU 1"),
            ("NIC mlx4_0", "NUMA node 1; PHB to GPU 2 and GPU 3; SYS to GPU 0 and GPU 1"),
        ]),
        ("100_no_x_cell_malformed", (), (), [("NUMA node 0", "CPUs 0-15"), ("GPU 0", "NUMA node 0")]),
        ("079_aws_doc_v100_elided_rows", (), (0,), [
            ("CPUs 0-15", "CPUs 0-15; yours: CPUs 0"),
            ("NUMA node not known", ""),
            ("GPU 0", "NUMA node not known; NV2 to GPU 3; NV1 to GPU 1 and GPU 2"),
            ("GPU 1", "NUMA node not known; NV2 to GPU 3; NV1 to GPU 0 and GPU 2"),
            ("GPU 2", "NUMA node not known; NV1 to GPU 0 and GPU 1; unknown link to GPU 3"),
            ("GPU 3", "NUMA node not known; NV2 to GPU 0 and GPU 1; unknown link to GPU 2"),
        ]),
    ],
)  # fmt: skip
def test_table(name: str, own_gpus: tuple[int, ...], own_cpus: tuple[int, ...], rows: list[tuple[str, str]]) -> None:
    """The table matches the picture: NUMA nodes, GPUs and NICs with links, and the job's own part."""
    assert node.table(MACHINES[name], own_gpus=own_gpus, own_cpus=own_cpus) == rows


def test_mig_devices_are_told_apart() -> None:
    """MIG devices of one GPU have its number and one of their own."""
    names = [name for name, _ in node.table(MACHINES["a100-mig"], own_gpus=(3,))][2:8]
    assert names == [
        "GPU 0",
        "GPU 1",
        "slice 0 of GPU 2",
        "slice 1 of GPU 2, yours",
        "slice 2 of GPU 2",
        "slice 3 of GPU 2",
    ]


def test_a_gpu_that_is_lost_is_said_to_be() -> None:
    """Beside the others, in the driver's words."""
    machine = MACHINES["k80-2socket"]
    gpus = (replace(machine.gpus[0], name="", memory_mib=None, fault="GPU is lost"), *machine.gpus[1:])

    rows = node.table(replace(machine, gpus=gpus))

    assert [words.partition("; NUMA")[0] for name, words in rows if name.startswith("GPU")] == [
        "GPU is lost",
        *["K80, 12 GB"] * 3,
    ]


def test_a_node_of_which_nothing_is_known_can_be_drawn() -> None:
    """Without GPU, CPU or NUMA node there is still a picture."""
    drawn = picture_of(NodeTopology())
    assert drawn.words()[:2] == ["Node g1", "No GPU"]


@pytest.mark.parametrize(
    ("name", "words"), [("cpu", ["distance 21"]), ("dgx2", ["distance 21"]), ("037_dgx_a100_nps4_mlx5x12", [])]
)
def test_distance_is_told_where_it_is_known(name: str, words: list[str]) -> None:
    """NUMA nodes without a PCIe link word show their distance, if it is known."""
    assert [word for word in picture_of(MACHINES[name]).words() if word.startswith("distance")] == words


def test_gpus_without_a_known_place_stand_apart() -> None:
    """A GPU of an unknown node is drawn, but not at any NUMA node."""
    nodes = (NumaNode(0, (0, 1), 1, (10, 21)), NumaNode(1, (2, 3), 1, (21, 10)))
    drawn = picture_of(NodeTopology(gpus=(Gpu(0, numa_node=1), Gpu(1)), numa_nodes=nodes))
    assert [word for word in drawn.words() if word.startswith("NUMA")] == [
        "NUMA node 0",
        "NUMA node 1",
        "NUMA node not known",
    ]
