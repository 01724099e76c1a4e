"""How the ranks of a run ended, and which of them is named."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.node.step.endings import Ending, Verdict, judge, parse

NODES = ("g1", "g1", "g2", "g2")
WELL = [Ending(rank, NODES[rank]) for rank in range(4)]


def test_an_ending_is_found_after_any_text() -> None:
    """A rank's last line may be unfinished, and srun puts a label before it; other marks are left alone."""
    ending = Ending(3, "g2", 7, 0, "/home/ada/rank-3.g2.log")
    line = ending.line("abc")
    assert parse(line, "abc") == ("", ending)
    assert parse(f"3: unfinished{line}", "abc") == ("3: unfinished", ending)
    assert parse(line, "other") == (line, None)
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
        ([*WELL[:3], Ending(3, "g2", 0, 9)], 137, Verdict(137, ("rank 3 on g2 was ended by signal 9",))),
        ([*WELL[:2], Ending(2, "g2", 0, 15)], 137, Verdict(137, ("rank 3 on g2 ended without a word",))),
    ],
)
def test_the_cause_is_named(ended: list[Ending], status: int, verdict: Verdict) -> None:
    """Not a rank that Slurm has ended because of another."""
    assert judge(ended, NODES, status) == verdict
