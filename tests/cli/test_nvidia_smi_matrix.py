"""The text of nvidia-smi topo -m: 91 of machines, every cut of them, and each rule of the grammar by itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.cli.nvidia_smi_matrix import TopoTextError, parse
from jupyterhub_gpuspawner.cli.topology import decoded
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, is_link
from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist

DATA = Path(__file__).parents[1] / "data"
INDEX = {
    row["file"]: row
    for row in csv.DictReader((DATA / "topo-m" / "INDEX.tsv").read_text("utf-8").splitlines(), delimiter="\t")
}
"""What was found by people in each text: counts, link words, whether it is whole."""
USABLE = sorted(name for name, row in INDEX.items() if not row["notes"].startswith("NEGATIVE"))


def text(name: str) -> str:
    """One of the recorded outputs."""
    return decoded((DATA / "topo-m" / name).read_bytes())


def document_of(topology: NodeTopology) -> dict[str, Any]:
    """A topology in the words of the expected files."""
    return {
        "gpus": [f"GPU{gpu.index}" for gpu in topology.gpus],
        "links": [list(row) for row in topology.links],
        "cpu_affinity": [format_cpulist(gpu.cpus) or None for gpu in topology.gpus],
        "numa_affinity": [format_cpulist(gpu.numa_affinity) or None for gpu in topology.gpus],
        "gpu_numa_id": [gpu.gpu_numa_id for gpu in topology.gpus],
        "nics": list(topology.nics),
        "nic_links": [list(row) for row in topology.nic_links],
        "damaged": bool(topology.problems),
    }


def expected(name: str) -> dict[str, Any]:
    """What the text says, derived without the parser; affinities in the shortest form."""
    document: dict[str, Any] = json.loads((DATA / "topo-m-expected" / name.replace(".txt", ".json")).read_text("utf-8"))
    for key in ("cpu_affinity", "numa_affinity"):
        document[key] = [affinity and format_cpulist(parse_cpulist(affinity)) for affinity in document[key]]
    return document


@pytest.mark.parametrize("name", USABLE)
def test_matrix_is_what_the_text_says(name: str) -> None:
    """Every recorded output is read as it stands: links, NICs, affinities, and whether something is wrong with it."""
    assert document_of(parse(text(name))) == expected(name)


@pytest.mark.parametrize("name", USABLE)
def test_index_agrees(name: str) -> None:
    """The expected files have the GPUs, the link words and the verdict that people noted for each text."""
    row, document = INDEX[name], expected(name)
    words = {word for line in document["links"] + document["nic_links"] for word in line} - {"?", "X"}
    assert (len(document["gpus"]), document["damaged"]) == (int(row["n_gpu_cols"]), row["verdict"] != "ok")
    assert not row["links_seen"] or words <= set(row["links_seen"].split())
    columns = {
        "CPU Affinity": any(document["cpu_affinity"]),
        "NUMA Affinity": any(document["numa_affinity"]),
        "GPU NUMA ID": any(numa_id is not None for numa_id in document["gpu_numa_id"]),
    }
    assert {column for column, has in columns.items() if has} <= set(row["affinity_columns"].split(";"))


@pytest.mark.parametrize("name", sorted(set(INDEX) - set(USABLE)))
def test_what_is_no_matrix_is_named(name: str) -> None:
    """The output of topo -p2p, of another program or of a failure is not a link matrix, and the error says so."""
    refused = json.loads((DATA / "topo-m-expected" / name.replace(".txt", ".json")).read_text("utf-8"))["refused"]
    with pytest.raises(TopoTextError, match=refused):
        parse(text(name))


OTHERS = {
    "========= ROCm System Management Interface =========\n": "rocm-smi",
    "       GPU0         GPU1\n==== Weight between two GPUs ====\nGPU0   0            15\n": "rocm-smi",
    "ACCESS TABLE:\n             0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 ENABLED      ENABLED\n": "amd-smi",
    "LINK TYPE TABLE:\n             0000:0c:00.0\n0000:0c:00.0 SELF\n": "amd-smi",
    "         GPU 0/0  GPU 0/1  CPU Affinity\nGPU 0/0  S        MDF      0-55\n": "xpu-smi",
    "| NVIDIA-SMI 535.104.05     Driver Version: 535.104.05   CUDA Version: 12.2 |\n": "without topo -m",
}


@pytest.mark.parametrize(("words", "program"), OTHERS.items())
def test_the_output_of_another_program_is_named(words: str, program: str) -> None:
    """People paste what they have."""
    with pytest.raises(TopoTextError, match=rf"This is the output of .*{program}.*; only that of nvidia-smi topo -m"):
        parse(words)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_text_of_another_encoding_is_read(encoding: str) -> None:
    """Windows PowerShell writes UTF-16, editors write a byte order mark; neither is part of the text."""
    words = "\tGPU0\tGPU1\r\nGPU0\t X \tNV2\r\nGPU1\tNV2\t X \r\n"
    assert decoded(words.encode(encoding)) == words


@pytest.mark.parametrize(
    "words",
    ["", "Wed Jun 14 10:02:33 2017\n", "GPU 0: Tesla K80 (UUID: GPU-1)\n", "\tGPU0\tGPU1\tCPU Affinity\n", "X\n"],
)
def test_other_text_is_refused(words: str) -> None:
    """Text without a header and a row says what was looked for."""
    with pytest.raises(TopoTextError, match="no header line with GPU0"):
        parse(words)


def test_names_twice_are_refused() -> None:
    """Two columns with the same name cannot be told apart."""
    with pytest.raises(TopoTextError, match="GPU0 twice"):
        parse("\tGPU0\tGPU0\nGPU0\t X \tPIX\n")


def test_no_readable_link_is_refused() -> None:
    """Rows without any link word give no matrix; the reasons follow."""
    with pytest.raises(TopoTextError, match=r"No link between two GPUs.* GPU0: the row has 0 links .* 2 devices"):
        parse("\tGPU0\tGPU1\nGPU0\t1\t2\nGPU1\t3\t4\n")


HEADER = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
ROWS = "GPU0\t X \tNV2\t{}\nGPU1\tNV2\t X \t{}\n"
PLAIN = Gpu(1, cpus=(1,), numa_node=0, numa_affinity=(0,))


@pytest.mark.parametrize(
    ("tail", "gpu"),
    [
        ("0-3\t1\t\tN/A", Gpu(0, cpus=(0, 1, 2, 3), numa_node=1, numa_affinity=(1,))),
        ("0-3\t1\t\t5", Gpu(0, cpus=(0, 1, 2, 3), numa_node=1, numa_affinity=(1,), gpu_numa_id=5)),
        ("0-3\t1\t\t", Gpu(0, cpus=(0, 1, 2, 3), numa_node=1, numa_affinity=(1,))),
        ("0-3\t\tN/A\t\tN/A", Gpu(0, cpus=(0, 1, 2, 3))),
        ("0,2\t0-1\t\tN/A", Gpu(0, cpus=(0, 2), numa_affinity=(0, 1))),
        ("\t\t\tN/A", Gpu(0)),
        ("\t1\t\tN/A", Gpu(0, numa_node=1, numa_affinity=(1,))),
        ("N/A\t1\t\tN/A", Gpu(0, numa_node=1, numa_affinity=(1,))),
    ],
)
def test_affinity_of_a_row_with_tabs(tail: str, gpu: Gpu) -> None:
    """Empty fields between tabs count: a missing CPU list does not move the NUMA node."""
    topology = parse(HEADER + ROWS.format(tail, "1\t0\t\tN/A"))
    assert (topology.gpus, topology.problems) == ((gpu, PLAIN), ())


@pytest.mark.parametrize(
    ("tail", "gpu", "problem"),
    [
        ("0-3  1   N/A", Gpu(0, cpus=(0, 1, 2, 3), numa_node=1, numa_affinity=(1,)), ()),
        ("0-3          1    5", Gpu(0, cpus=(0, 1, 2, 3), numa_node=1, numa_affinity=(1,), gpu_numa_id=5), ()),
        ("           N/A", Gpu(0), ()),
        ("1          N/A", Gpu(0), ("GPU0: it is not clear which affinity 1 N/A is.",)),
        ("3-1 1 N/A", Gpu(0, numa_node=1, numa_affinity=(1,)), (
            "GPU0: CPU Affinity: '3-1' in '3-1' is not a CPU or a range of CPUs: write a list such as 0-3,8.",)),
    ],
)  # fmt: skip
def test_affinity_of_a_row_without_tabs(tail: str, gpu: Gpu, problem: tuple[str, ...]) -> None:
    """Without tabs only a complete set of values is clear; a value's position in the line proves nothing."""
    words = HEADER + ROWS.format(tail, "1 0 N/A")
    topology = parse(words.replace("\t", "    "))
    assert (topology.gpus, topology.problems) == ((gpu, PLAIN), problem)


@pytest.mark.parametrize(
    ("words", "links", "problems"),
    [
        ("\tGPU9\tGPU11\nGPU9\t X \tPIX\nGPU11\tPIX\t X \n", [["X", "PIX"], ["PIX", "X"]], ()),
        ("\tGPU0\tGPU1\r\nGPU0\t X \tSYS\r\nGPU1\tSOC\t X \r\n", [["X", "SYS"], ["SYS", "X"]], ()),
        ("GPU0GPU1\nGPU0 X PHBPHB\nGPU1 PHB X\n", [["X", "PHB"], ["PHB", "X"]],
         ("GPU0: the row has 3 links where the header names 2 devices.",)),
        ("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tC2C\tPIX\nGPU1\tC2C\t X \tPIX\nGPU2\tPIX\tPIX\t X\n",
         [["X", "?", "PIX"], ["?", "X", "PIX"], ["PIX", "PIX", "X"]],
         ("GPU0: C2C is not a known link word.", "GPU1: C2C is not a known link word.")),
        ("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV2\tPIX\nGPU1\tNV1\t X \tPIX\nGPU2\tPIX\tPIX\t X\n",
         [["X", "?", "PIX"], ["?", "X", "PIX"], ["PIX", "PIX", "X"]],
         ("GPU0 and GPU1: one row says NV1, the other NV2.",)),
        ("\tGPU0\tGPU1\nGPU0\tPIX\t X \nGPU1\tPIX\t X\n", [["X", "PIX"], ["PIX", "X"]],
         ("GPU0: its own column says PIX, not X; the row is not used.",)),
        ("\x1b[4m\tGPU0\tGPU1\x1b[0m\nGPU0\tX\tNV18\nGPU1\tNV18\tX\n\tGPU0\tGPU1\nGPU0\tX\tSYS\n",
         [["X", "NV18"], ["NV18", "X"]], ()),
        ("# host.log:\n# \tGPU0\tGPU1\n# GPU0\t X \tNV4\n# GPU1\tNV4\t X\n", [["X", "NV4"], ["NV4", "X"]], ()),
        ("out.py:# \tGPU0\tGPU1\nout.py:# GPU0\t X \tNV4\nout.py:# GPU1\tNV4\t X\n", [["X", "NV4"], ["NV4", "X"]], ()),
    ],
)  # fmt: skip
def test_rows(words: str, links: list[list[str]], problems: tuple[str, ...]) -> None:
    """One rule each: names with gaps, old words, glued cells, new words, contradiction, a shift, colours, comments."""
    topology = parse(words)
    assert ([list(row) for row in topology.links], topology.problems) == (links, problems)


@pytest.mark.parametrize(
    "name",
    [
        "024_dgx1v_microway.txt",
        "045_windows_gpu1_driver616.txt",
        "058_gpu6_ansi_before_tab.txt",
        "060_a100x4_nv12_pairs_4numa.txt",
        "064_gb200_emulator_degraded_nvlink.txt",
        "084_gpu8_4x4_node_4090.txt",
    ],
)
def test_every_cut_tells_no_lie(name: str) -> None:
    """However short the text is cut, every link that is read is right, and a missing link comes with a problem."""
    words = text(name).split("Legend")[0].rstrip()
    whole = parse(words)
    for end in range(len(words)):
        try:
            cut = parse(words[:end])
        except TopoTextError:
            continue
        size = len(cut.gpus)
        links = [(a, b, cut.link(a, b)) for a in range(size) for b in range(size) if cut.link(a, b) != "?"]
        assert links == [(a, b, whole.link(a, b)) for a, b, _ in links]
        assert cut.problems or len(links) == len(whole.gpus) ** 2


@given(st.text(alphabet="GPUNICX SYSNV128-,/A|.#*\t\n", max_size=200), st.sampled_from(USABLE), st.integers(0, 3000))
def test_any_text_is_read_or_refused(noise: str, name: str, at: int) -> None:
    """Noise anywhere in a text gives a sound topology or a TopoTextError, never another error."""
    words = text(name)
    for variant in (noise, words[:at] + noise + words[at:]):
        try:
            topology = parse(variant)
        except TopoTextError:
            continue
        assert all(is_link(word) for row in topology.links for word in row)
