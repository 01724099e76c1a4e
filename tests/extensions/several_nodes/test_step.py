"""How the ranks of a run ended, which of them is named, and a run that starts no step."""

from __future__ import annotations

import socket

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.node import variables
from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import Options
from jupyterhub_gpuspawner.extensions.several_nodes.node.step import (
    NO_STEP,
    Message,
    Output,
    Ranks,
    Verdict,
    parse,
    run,
)

NODES = ("g1", "g1", "g2", "g2")
WELL = [Message(rank, NODES[rank], 0) for rank in range(4)]
THERE = [Message(rank) for rank in range(4)]


def test_an_ending_is_found_after_any_text() -> None:
    """A rank's last line may be unfinished, and srun puts a label before it; other marks are left alone."""
    ending = Message(3, "g2", 7, "/home/ada/rank-3.g2.log")
    line = ending.line("abc")
    assert parse(line, "abc") == ("", ending)
    assert parse(f"3: unfinished{line}", "abc") == ("3: unfinished", ending)
    assert parse(line, "other") == (line, None)
    assert parse(f"3: half a line{Message(3).line('abc')}", "abc") == ("3: half a line", Message(3))
    assert parse("3: a line\n", "abc") == ("3: a line\n", None)


@pytest.mark.parametrize(
    ("messages", "status", "verdict"),
    [
        (WELL, 0, Verdict()),
        ([], 1, Verdict(1, ("srun started no rank; its exit code is 1",))),
        (WELL, 1, Verdict(1, ("srun failed with exit code 1",))),
        (THERE, 1, Verdict(1, ("ranks 0, 1 on g1 ended without a word", "ranks 2, 3 on g2 ended without a word"))),
        ([Message(2, "g2", 7), Message(0, "g1", -15)], 7, Verdict(7, ("rank 2 on g2 failed with exit code 7",))),
        (
            [Message(0, "g1", -15), Message(3, "g2", -11, "/l/rank-3.g2.log")],
            139,
            Verdict(139, ("rank 3 on g2 was ended by signal 11; its log is /l/rank-3.g2.log",)),
        ),
        (
            [Message(rank, NODES[rank], -15) for rank in range(4)],
            143,
            Verdict(
                143,
                ("all ranks were ended by signal 15: the step or its job was cancelled, or reached its time limit",),
            ),
        ),
        ([*WELL[:3], Message(3, "g2", -9)], 137, Verdict(137, ("rank 3 on g2 was ended by signal 9",))),
        ([*WELL[:2], Message(2, "g2", -15)], 137, Verdict(137, ("rank 3 on g2 ended without a word",))),
    ],
)
def test_the_cause_is_named(messages: list[Message], status: int, verdict: Verdict) -> None:
    """Not a rank that Slurm has ended because of another; where srun refuses the step, no rank."""
    ranks = Ranks(NODES, 60)
    for message in messages:
        ranks.heard(message)
    assert ranks.verdict(status) == verdict


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
    ranks, without_limit = Ranks(NODES, 60), Ranks(NODES, 0)
    for message in (Message(0), Message(1), Message(3), Message(0, "g1", 0)):
        ranks.heard(message)
        without_limit.heard(message)
    ranks.waited(50)
    without_limit.waited(100000)
    ranks.heard(Message(1))
    ranks.waited(9)
    ranks.heard(Message(2))
    assert (ranks.lost(), without_limit.lost()) == ((), ())
    ranks.waited(1)
    words = [
        f"rank {n} on {node} gave no sign of life for 60 seconds; all ranks are being ended"
        for n, node in ((1, "g1"), (3, "g2"))
    ]
    assert [ranks.lost(), ranks.lost(nearly=15), ranks.lost(nearly=55)] == [(words[1],), (words[1],), tuple(words)]


def test_where_all_ports_are_taken_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As any other thing that the step needs and does not have."""
    with socket.socket() as holder:
        holder.bind(("", 0))
        port = holder.getsockname()[1]
        monkeypatch.setattr(variables, "PORTS", (port, port))
        environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "g1", "SLURMD_NODENAME": "g1", "PATH": ""}
        status = run(Options(("train",)), environ, archive=b"", plan="{}")
    assert status == NO_STEP
    assert capfd.readouterr().err == f"gpuspawner-run: no port from {port} to {port} is free on this node\n"
