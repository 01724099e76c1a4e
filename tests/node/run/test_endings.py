"""How the ranks of a run ended, and which of them is named."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.node.run.step import Beat, Ending, Output, Verdict, Watch, judge, parse, silence

NODES = ("g1", "g1", "g2", "g2")
WELL = [Ending(rank, NODES[rank]) for rank in range(4)]


def test_an_ending_is_found_after_any_text() -> None:
    """A rank's last line may be unfinished, and srun puts a label before it; other marks are left alone."""
    ending = Ending(3, "g2", 7, 0, "/home/ada/rank-3.g2.log")
    line = ending.line("abc")
    assert parse(line, "abc") == ("", ending)
    assert parse(f"3: unfinished{line}", "abc") == ("3: unfinished", ending)
    assert parse(line, "other") == (line, None)
    assert parse(f"3: half a line{Beat(3).line('abc')}", "abc") == ("3: half a line", Beat(3))
    assert parse("3: a line\n", "abc") == ("3: a line\n", None)


@pytest.mark.parametrize(
    ("ended", "status", "verdict"),
    [
        (WELL, 0, Verdict()),
        (WELL, 1, Verdict(1, ("srun failed with exit code 1",))),
        ([], 1, Verdict(1, ("ranks 0, 1 on g1 ended without a word", "ranks 2, 3 on g2 ended without a word"))),
        ([Ending(2, "g2", 7), Ending(0, "g1", 0, 15)], 7, Verdict(7, ("rank 2 on g2 failed with exit code 7",))),
        (
            [Ending(0, "g1", 0, 15), Ending(3, "g2", 0, 11, "/l/rank-3.g2.log")],
            139,
            Verdict(139, ("rank 3 on g2 was ended by signal 11; its log is /l/rank-3.g2.log",)),
        ),
        (
            [Ending(rank, NODES[rank], 0, 15) for rank in range(4)],
            143,
            Verdict(
                143,
                ("all ranks were ended by signal 15: the step or its job was cancelled, or reached its time limit",),
            ),
        ),
        ([*WELL[:3], Ending(3, "g2", 0, 9)], 137, Verdict(137, ("rank 3 on g2 was ended by signal 9",))),
        ([*WELL[:2], Ending(2, "g2", 0, 15)], 137, Verdict(137, ("rank 3 on g2 ended without a word",))),
    ],
)
def test_the_cause_is_named(ended: list[Ending], status: int, verdict: Verdict) -> None:
    """Not a rank that Slurm has ended because of another."""
    assert judge(ended, NODES, status) == verdict


def test_a_step_that_srun_refuses_is_no_fault_of_its_ranks() -> None:
    """No rank has begun; srun itself has written why."""
    assert judge([], NODES, 1, started=False) == Verdict(1, ("srun started no rank; its exit code is 1",))


@pytest.mark.parametrize(
    ("labelled", "chunks", "lines"),
    [
        (True, [b"0: on", b"e\n1: tw", b""], [[], [b"0: one\n"], [b"1: tw"]]),
        (False, [b"\r10 %", b"\r20 %", b"\n", b""], [[b"\r10 %"], [b"\r20 %"], [b"\n"], []]),
        (False, [b"a\n\x1egpu", b"spawner-run x\nb", b""], [[b"a\n"], [b"\x1egpuspawner-run x\n", b"b"], []]),
    ],
    ids=["labelled", "a bar of progress", "a message in two parts"],
)
def test_output_is_passed_on_as_it_comes(labelled: bool, chunks: list[bytes], lines: list[list[bytes]]) -> None:
    """By lines where srun writes lines; else also the begin of one, but never a part of a rank's own message."""
    output = Output(labelled=labelled)
    assert [output.lines(chunk) for chunk in chunks] == lines


def test_a_rank_is_lost_after_long_silence() -> None:
    """Only one that has spoken and has not ended; with it go those that have been silent for nearly as long."""
    watch = Watch(60)
    for rank in (0, 1, 3):
        watch.heard(Beat(rank))
    watch.heard(Ending(0, "g1"))
    watch.waited(50)
    watch.heard(Beat(1))
    watch.waited(9)
    watch.heard(Beat(2))
    assert watch.lost() == ()
    watch.waited(1)
    assert (watch.lost(), watch.lost(nearly=15), watch.lost(nearly=55)) == ((3,), (3,), (1, 3))
    assert silence(watch.lost(nearly=55), NODES, 60) == (
        "rank 1 on g1 gave no sign of life for 60 seconds; all ranks are being ended",
        "rank 3 on g2 gave no sign of life for 60 seconds; all ranks are being ended",
    )


def test_without_a_limit_no_rank_is_lost() -> None:
    """However long it is silent."""
    watch = Watch(0)
    watch.heard(Beat(0))
    watch.waited(100000)
    assert watch.lost() == ()
