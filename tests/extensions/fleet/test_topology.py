"""gpuspawner topology --gres-conf, with recorded machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import MACHINES, TEXTS

if TYPE_CHECKING:
    from tests.fixtures.commands import Call


def test_lines_for_gres_conf_do_not_go_with_recording(gpuspawner: Call) -> None:
    """Options that a subcommand would silently leave out are refused."""
    result = gpuspawner("topology", "--gres-conf", "record", "-")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--json and --gres-conf cannot be used with record." in result.stderr


def test_lines_for_gres_conf(gpuspawner: Call) -> None:
    """A line for each GPU of a recorded node, for the nodes that --node names."""
    result = gpuspawner("topology", "--file", MACHINES / "k80-2socket.json", "--gres-conf", "--node", "g[1-4]")

    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "NodeName=g[1-4] Name=gpu Type=k80 File=/dev/nvidia0 Cores=0-11",
            "NodeName=g[1-4] Name=gpu Type=k80 File=/dev/nvidia1 Cores=0-11",
            "NodeName=g[1-4] Name=gpu Type=k80 File=/dev/nvidia2 Cores=12-23",
            "NodeName=g[1-4] Name=gpu Type=k80 File=/dev/nvidia3 Cores=12-23",
        ],
    )


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("001_gpu7_2socket_ansi", ["0-9"] * 4 + ["10-19"] * 3),
        ("034_polaris_a100x4_reverse_numa", ["24-31", "16-23", "8-15", "0-7"]),
        ("037_dgx_a100_nps4_mlx5x12", [""] * 8),  # NUMA nodes without a GPU, of which the text says nothing
        ("015_k80x4_2socket_job4cpu", [""] * 4),  # of a job with four CPUs
    ],
)
def test_a_text_has_the_cores_of_nodes_that_all_have_gpus(gpuspawner: Call, text: str, cores: list[str]) -> None:
    """nvidia-smi topo -m names the CPUs beside each GPU; how many share a core must be given."""
    result = gpuspawner("topology", "--text", TEXTS / f"{text}.txt", "--gres-conf", "--threads-per-core", "2")
    lines = [line for line in result.stdout.splitlines() if not line.startswith("#")]
    assert [line.partition(" Cores=")[2] for line in lines] == cores


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--gres-conf", "--json"), "--json and --gres-conf cannot be used together."),
        (("--node", "g1"), "--node, --numa-node-as-socket and --threads-per-core belong to --gres-conf."),
        (("--gres-conf", "--node", "g1 Name=gpu"), "'g1 Name=gpu' is not a list of nodes such as g1 or g[1-4]"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    gpuspawner: Call, options: tuple[str, ...], sentence: str
) -> None:
    """Exit code 2, and the reason."""
    result = gpuspawner("topology", "--file", MACHINES / "k80-2socket.json", *options)
    assert (result.exit_code, result.stderr.strip().endswith(sentence)) == (2, True)


def test_a_node_without_gpus_has_no_lines(gpuspawner: Call) -> None:
    """Exit code 2, one line on standard error."""
    result = gpuspawner("topology", "--file", MACHINES / "cpu.json", "--gres-conf")
    message = "gpuspawner: no GPU was found, so there are no lines for gres.conf\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", message)
