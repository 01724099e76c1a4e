"""Parsers and formatters, tested with the tables of the man pages and output of real clusters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.units import (
    Gres,
    TooManyNames,
    expand_nodelist,
    format_cpulist,
    format_memory,
    format_walltime,
    parse_cpulist,
    parse_gres,
    parse_memory,
    parse_wait,
    parse_walltime,
)

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * MINUTE),
        (90, 90 * MINUTE),
        ("30:00", 30 * MINUTE),
        ("90:00", 90 * MINUTE),
        ("8:00:00", 8 * HOUR),
        ("00:00:07", 7),
        ("1-2", DAY + 2 * HOUR),
        ("1-2:30", DAY + 2 * HOUR + 30 * MINUTE),
        ("5-00:00:00", 5 * DAY),
        ("1-02:03:04", DAY + 2 * HOUR + 3 * MINUTE + 4),
        ("0", 0),
        (" 8:00:00 ", 8 * HOUR),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_each_form_of_sbatch_1_has_its_seconds(text: str | int, seconds: int | None) -> None:
    """30:00 is thirty minutes, not thirty hours."""
    assert parse_walltime(text) == seconds


@pytest.mark.parametrize(("text", "seconds"), [("4:00:00", 14400), ("0:00:05", 5), ("1-0", 86400), ("unlimited", None)])
def test_a_time_to_wait_is_written_like_a_walltime(text: str, seconds: int | None) -> None:
    """UNLIMITED has no end."""
    assert parse_wait(text) == seconds


@pytest.mark.parametrize("text", [600, "600", " 90 ", "0:00:00", "0-0", "soon", "", True])
def test_a_time_to_wait_has_a_unit_and_is_not_zero(text: str | int) -> None:
    """A bare number could be seconds, as in JupyterHub's settings, or minutes, as in Slurm's."""
    with pytest.raises(ValueError, match=r"write a time such as 4:00:00|is not a valid time"):
        parse_wait(text)


@pytest.mark.parametrize(
    "text", ["", "8h", "1:2:3:4", "1-", "-5", "1-2-3", "1:", ":1", "8:00:00\n#SBATCH --x", "٣", True, -1, "N/A"]
)
def test_what_is_no_time_is_refused_with_the_forms(text: str | int) -> None:
    """The error says what is expected."""
    with pytest.raises(ValueError, match="is not a valid time: use minutes, minutes:seconds, hours:minutes:seconds"):
        parse_walltime(text)


@given(st.none() | st.integers(0, 400 * DAY))
def test_a_time_is_read_as_it_was_written(seconds: int | None) -> None:
    """format, then parse, gives the same seconds."""
    assert parse_walltime(format_walltime(seconds)) == seconds


def test_a_time_is_written_as_squeue_prints_it() -> None:
    """Hours without a leading zero, days before a dash."""
    assert [format_walltime(s) for s in (0, 30 * MINUTE, 8 * HOUR, DAY + 2 * HOUR, None)] == [
        "0:00:00",
        "0:30:00",
        "8:00:00",
        "1-02:00:00",
        "UNLIMITED",
    ]


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("32000", 32000),
        (32000, 32000),
        ("32000M", 32000),
        ("32G", 32768),
        ("32GB", 32768),
        ("32 GiB", 32768),
        ("32g", 32768),
        ("1T", 1048576),
        ("1P", 1 << 30),
        ("1.5P", 3 << 29),
        ("1E", 1 << 40),
        ("1.5G", 1536),
        ("31.25G", 32000),
        ("1K", 1),
        ("1025K", 2),
        ("0", 0),
    ],
)
def test_memory_counts_mib_in_powers_of_1024(text: str | int, mib: int) -> None:
    """sbatch's letters, with common endings."""
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["", "much", "-1", "32B", "32X", "32 G B", "1e3", "3,2G", True])
def test_what_is_no_memory_is_refused(text: str | int) -> None:
    """The error says what is expected."""
    with pytest.raises(
        ValueError, match="is not a valid amount of memory: use a number of MiB, or a number with K, M, G or T"
    ):
        parse_memory(text)


@given(st.integers(0, 2**36))
def test_memory_is_read_as_it_was_written(mib: int) -> None:
    """format, then parse, gives the same MiB."""
    assert parse_memory(format_memory(mib)) == mib


def test_memory_is_written_as_sbatch_takes_it() -> None:
    """MiB with M; the node's whole memory is a bare 0."""
    assert (format_memory(32000), format_memory(0)) == ("32000M", "0")


def test_a_host_list_beyond_any_cluster_is_refused_at_once() -> None:
    """Before its names fill the reader's memory."""
    with pytest.raises(TooManyNames, match="more than 65536 nodes"):
        expand_nodelist("a[1-999]b[1-999]")
    with pytest.raises(TooManyNames, match="more than 65536 nodes"):
        expand_nodelist("a[1-999999999]")
    with pytest.raises(TooManyNames, match="more than 9 nodes"):
        expand_nodelist("a[1-4],b[1-6]", limit=9)


@pytest.mark.parametrize(
    ("text", "gres"),
    [
        ("", ()),
        ("(null)", ()),
        ("N/A", ()),
        ("none", ()),
        ("gpu", (Gres("gpu"),)),
        ("gpu:4", (Gres("gpu", None, 4),)),
        ("gpu:a100:4", (Gres("gpu", "a100", 4),)),
        ("gpu:a100", (Gres("gpu", "a100", 1),)),
        ("gpu:1080:2", (Gres("gpu", "1080", 2),)),
        ("gpu:1g.10gb:2", (Gres("gpu", "1g.10gb", 2),)),
        ("gpu:nvidia_a100_1g.5gb+me:1", (Gres("gpu", "nvidia_a100_1g.5gb+me", 1),)),
        ("gres/gpu:k80:2", (Gres("gpu", "k80", 2),)),
        ("gres:gpu:k80:2", (Gres("gpu", "k80", 2),)),
        ("gres/gpu:a100=2", (Gres("gpu", "a100", 2),)),
        ("cpu=4,mem=31.25G,node=1,billing=4,gres/gpu=2", (Gres("gpu", None, 2),)),
        ("gpu:k80:4(S:0-1)", (Gres("gpu", "k80", 4, sockets=(0, 1)),)),
        ("gpu:k80:4(S:0,2)", (Gres("gpu", "k80", 4, sockets=(0, 2)),)),
        ("gpu:v100:6(IDX:0-2,4-6),shard:0", (Gres("gpu", "v100", 6, (0, 1, 2, 4, 5, 6)), Gres("shard", None, 0))),
        ("gpu:a100:0(IDX:)", (Gres("gpu", "a100", 0),)),
        ("gpu:k80:0(IDX:N/A)", (Gres("gpu", "k80", 0),)),
        ("gpu:1g.10gb:4,gpu:a100:2", (Gres("gpu", "1g.10gb", 4), Gres("gpu", "a100", 2))),
        (
            "gpu:t4:0(IDX:N/A),shard:t4:5(3/4,2/4)",
            (Gres("gpu", "t4", 0), Gres("shard", "t4", 5, (0, 1), shares=((3, 4), (2, 4)))),
        ),
        ("shard:3(3/4,0/4)", (Gres("shard", None, 3, (0,), shares=((3, 4), (0, 4))),)),
        ("shard:5(2/2,3/3,-/3)", (Gres("shard", None, 5, (0, 1), shares=((2, 2), (3, 3), (3, 3))),)),
        ("shard:(null):1(0/3,1/3)", (Gres("shard", None, 1, (1,), shares=((0, 3), (1, 3))),)),
        ("shard:(null):2(IDX:0-1)", (Gres("shard", None, 2, (0, 1)),)),
        ("shard:2(0/4,2/4)", (Gres("shard", None, 2, (1,), shares=((0, 4), (2, 4))),)),
        ("shard:3(IDX:0)", (Gres("shard", None, 3, (0,)),)),
        ("bandwidth(CNT:6)", (Gres("bandwidth", None, 6),)),
        ("nic:mlx(CNT:2)", (Gres("nic", "mlx", 2),)),
        ("craynetwork:4", (Gres("craynetwork", None, 4),)),
        ("gpu:no_consume:2", (Gres("gpu", None, 2),)),
        ("bandwidth:lustre:4G", (Gres("bandwidth", "lustre", 4 * 1024**3),)),
    ],
)
def test_every_form_of_a_generic_resource_is_read(text: str, gres: tuple[Gres, ...]) -> None:
    """What sbatch takes, and what 22.05, 24.11 and 26.05 print."""
    assert parse_gres(text) == gres


@pytest.mark.parametrize(
    "text", ["gpu:", ":4", "gpu:a:b:4", "gpu a100", "gpu:4(IDX:0", "gpu:t4:0(IDX:N/A),sht4)", "gpu:4\n--x", ","]
)
def test_what_is_no_generic_resource_is_refused(text: str) -> None:
    """A field that Slurm cut short is an error."""
    with pytest.raises(ValueError, match=r"is not a generic resource: use name\[:type\]\[:count\], such as gpu:a100:2"):
        parse_gres(text)


@given(
    st.lists(
        st.builds(
            Gres,
            name=st.sampled_from(["gpu", "shard", "mps"]),
            type=st.none() | st.sampled_from(["a100", "1g.10gb", "1080", "h100_80gb"]),
            count=st.integers(0, 4095),
        ),
        min_size=1,
    )
)
def test_a_gres_is_read_as_it_was_written(gres: list[Gres]) -> None:
    """str, then parse, gives the same name, type and count."""
    assert parse_gres(",".join(map(str, gres))) == tuple(gres)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("None assigned", ()),
        ("g1", ("g1",)),
        ("g[1-2],c01", ("g1", "g2", "c01")),
        ("rack[1-2]n[01-03]", ("rack1n01", "rack1n02", "rack1n03", "rack2n01", "rack2n02", "rack2n03")),
        ("n[8-10,098-100]", ("n8", "n9", "n10", "n098", "n099", "n100")),
        ("gpu-1.cluster.org", ("gpu-1.cluster.org",)),
    ],
)
def test_a_host_list_is_expanded_as_scontrol_does(text: str, names: tuple[str, ...]) -> None:
    """Order and leading zeros are kept."""
    assert expand_nodelist(text) == names


@pytest.mark.parametrize("text", ["g[1-2", "g[]", "g[a]", "g[3-1]", "g1,,g2", "g 1", "g1;rm"])
def test_what_is_no_host_list_is_refused(text: str) -> None:
    """The error says what is expected."""
    with pytest.raises(ValueError, match=r"use (names such as g1|\[1-4,07-12\])"):
        expand_nodelist(text)


# --- lists of CPUs, against the examples of cpuset(7) ---------------------------------------------


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", ()),
        ("0", (0,)),
        ("0-4,9", (0, 1, 2, 3, 4, 9)),
        ("0-2,7,12-14", (0, 1, 2, 7, 12, 13, 14)),
        ("3,1,1", (1, 3)),
        ("0-3\n", (0, 1, 2, 3)),
    ],
)
def test_a_cpulist_is_that_of_cpuset_7(text: str, cpus: tuple[int, ...]) -> None:
    """The examples of the page, and what a file of the kernel ends with."""
    assert parse_cpulist(text) == cpus


@pytest.mark.parametrize("text", ["0-1-2", "3-1", "0-", "-1", "a", "0,,1", "0-31:2", "0 1", "٣"])
def test_anything_else_is_refused(text: str) -> None:
    """Reversed and double ranges, and the strides that cpuset(7) does not know."""
    with pytest.raises(ValueError, match=r"is not a CPU or a range of CPUs: write a list such as 0-3,8"):
        parse_cpulist(text)


def test_a_range_beyond_any_machine_is_refused_at_once() -> None:
    """Before its numbers fill the reader's memory."""
    with pytest.raises(ValueError, match="more than 65536 CPUs"):
        parse_cpulist("0-999999999")


@given(st.lists(st.integers(0, 4095)))
def test_a_cpulist_is_read_as_it_was_written(cpus: list[int]) -> None:
    """format, then parse, gives the sorted set."""
    assert parse_cpulist(format_cpulist(cpus)) == tuple(sorted(set(cpus)))
