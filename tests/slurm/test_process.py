"""A command runs without a shell, with limits on time and output, and leaves no process behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm import process
from jupyterhub_gpuspawner.slurm.process import Answer, run
from jupyterhub_gpuspawner.tasks import timeout

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(100)"

Children = Callable[[], list[psutil.Process]]


@pytest.fixture
def children() -> Children:
    """The test's child processes, including zombies."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: [process for process in psutil.Process().children(recursive=True) if process not in before]


def python(code: str) -> tuple[str, str, str]:
    """Command line for a few lines of Python."""
    return (sys.executable, "-c", code)


async def test_answer_holds_exit_status_and_both_streams() -> None:
    """A command that fails gives an answer too."""
    answer = await run(
        python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"),
        name="it",
        environment=ENVIRONMENT,
        timeout=20,
    )
    assert answer == Answer("it", 3, "out\n", "err\n")


@pytest.mark.parametrize("end", [b"\n", b" "])
async def test_text_of_many_mebibytes_is_decoded_as_a_whole(tmp_path: Path, end: bytes) -> None:
    """With characters of every width and bytes that are none, wherever the answer is cut; with and without lines."""
    output = ("größe 漢字 😀".encode() + b"\xe6\xbc" + end) * 100_000
    (tmp_path / "output").write_bytes(output)
    answer = await run(("cat", str(tmp_path / "output")), name="cat", environment=ENVIRONMENT, timeout=60)
    assert answer.stdout == output.decode(errors="replace")


async def test_words_reach_the_command_as_they_are() -> None:
    """Without a shell, blanks, quotes, ``;`` and ``$()`` are ordinary characters of an argument."""
    word = "a b'c\"; $(echo no) *\n"
    answer = await run(("printf", "%s", word), name="printf", environment=ENVIRONMENT, timeout=20)
    assert answer.stdout == word


async def test_environment_is_what_was_given_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's keys are not passed on."""
    monkeypatch.setenv("JUPYTERHUB_CRYPT_KEY", "secret")
    answer = await run(("env",), name="env", environment={"PATH": os.environ["PATH"], "A": "1"}, timeout=20)
    assert sorted(answer.stdout.split()) == sorted([f"PATH={os.environ['PATH']}", "A=1"])


async def test_umask_is_the_usual_one_whatever_the_hubs_is() -> None:
    """sbatch passes it on to the job, and a hub's service has 0077."""
    umask = os.umask(0o077)
    try:
        answer = await run(("sh", "-c", "umask"), name="sh", environment=ENVIRONMENT, timeout=20)
    finally:
        os.umask(umask)
    assert answer.stdout == "0022\n"


@pytest.mark.parametrize("in_memory", [True, False])
async def test_stdin_is_handed_over_and_closed(monkeypatch: pytest.MonkeyPatch, in_memory: bool) -> None:
    """A long script arrives complete; without one stdin is empty.

    A Python of conda makes no files in memory: it is built for a libc without memfd_create(2).
    """
    if not in_memory:
        monkeypatch.delattr("os.memfd_create")
    script = "#!/bin/sh\n" + "echo é\n" * 50_000
    assert (await run(("cat",), name="cat", environment=ENVIRONMENT, timeout=20, stdin=script)).stdout == script
    assert (await run(("cat",), name="cat", environment=ENVIRONMENT, timeout=20)).stdout == ""


async def test_command_that_does_not_read_its_stdin_is_no_fault() -> None:
    """A command may exit before it has read everything, without a later error in the hub's log."""
    contexts: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    answer = await run(("true",), name="true", environment=ENVIRONMENT, timeout=20, stdin="x" * 1_000_000)
    await asyncio.sleep(0)
    gc.collect()
    assert (answer.code, contexts) == (0, [])


async def test_command_that_hangs_is_ended_with_its_children(children: Children) -> None:
    """After the timeout neither the command nor its children are left, not even as zombies."""
    with pytest.raises(SlurmUnavailable, match=r"squeue did not respond within 0\.3 s"):
        await run(("sh", "-c", "sleep 100 & sleep 100"), name="squeue", environment=ENVIRONMENT, timeout=0.3)
    assert children() == []


@pytest.mark.parametrize(
    ("name", "printed", "message"),
    [
        (
            "squeue",
            'squeue: error: Munge encode failed: Failed to connect to "/run/munge/munge.socket.2": Connection refused',
            "squeue did not respond within 0.3 s: munge is not responding, or refuses the request. Check munge on the "
            "hub's machine and on slurmctld's: both need the same key and synchronised clocks.",
        ),
        (
            "sbatch",
            "[sudo] password for jupyterhub: ",
            "sbatch did not respond within 0.3 s and printed: [sudo] password for jupyterhub: Check `scontrol ping`, "
            "that slurm.conf can be found, and munge (`munge -n`).",
        ),
        (
            "squeue",
            "",
            "squeue did not respond within 0.3 s. Check `scontrol ping`, that slurm.conf can be found, and munge "
            "(`munge -n`).",
        ),
        (
            "sacctmgr",
            "",
            "sacctmgr did not respond within 0.3 s. Check `sacctmgr ping`, that slurm.conf can be found, and munge "
            "(`munge -n`).",
        ),
    ],
)
async def test_what_a_command_printed_before_its_time_out_is_the_cause(name: str, printed: str, message: str) -> None:
    """It is not lost with the command that is killed."""
    script = ("sh", "-c", 'printf "%s" "$0" >&2; sleep 100', printed)
    with pytest.raises(SlurmUnavailable) as caught:
        await run(script, name=name, environment=ENVIRONMENT, timeout=0.3)
    assert str(caught.value) == message


async def test_command_that_ignores_sigterm_is_killed(children: Children) -> None:
    """SIGTERM is sent first, so that sudo can pass it on, and SIGKILL later."""
    with pytest.raises(SlurmUnavailable):
        await run(python(STUBBORN), name="squeue", environment=ENVIRONMENT, timeout=1.0)
    assert children() == []


async def test_sigterm_comes_before_sigkill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that runs another one, as sudo does, gets time to end it."""
    monkeypatch.setattr(process, "_GRACE", 60.0)  # a busy machine may need more than the hub gives
    ready, message = tmp_path / "ready", tmp_path / "message"
    script = f"trap 'echo terminated > {message}; exit 0' TERM; touch {ready}; while :; do sleep 0.05; done"
    command = asyncio.create_task(run(("sh", "-c", script), name="sbatch", environment=ENVIRONMENT, timeout=60))
    while not ready.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    while not message.exists() or not message.read_text():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert message.read_text() == "terminated\n"


async def test_cancellation_ends_the_command_and_goes_on(children: Children) -> None:
    """The caller gets CancelledError, and the command and its child are gone."""
    task = asyncio.create_task(
        run(("sh", "-c", "sleep 100 & sleep 100"), name="squeue", environment=ENVIRONMENT, timeout=60),
    )
    while len(children()) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert children() == []


async def test_second_cancellation_leaves_no_process_either(children: Children) -> None:
    """If the call is cancelled again during cleanup, the caller returns at once, and the process is still reaped."""
    task = asyncio.create_task(run(python(STUBBORN), name="squeue", environment=ENVIRONMENT, timeout=60))
    while not children() or children()[0].memory_info().rss < 5_000_000:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadline = time.monotonic() + 10
    while children() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert children() == []


@pytest.mark.parametrize("turns", range(8))
async def test_a_hub_that_shuts_down_is_not_held_by_a_command(children: Children, turns: int) -> None:
    """JupyterHub cancels all tasks, also those that asyncio has made, at any moment of the command's start."""
    command = asyncio.create_task(run(("sleep", "100"), name="squeue", environment=ENVIRONMENT, timeout=60))
    for _ in range(turns):
        await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    async with timeout(20):
        await asyncio.wait(tasks)
    assert command.cancelled()
    assert children() == []


async def test_endless_output_is_cut_off(children: Children) -> None:
    """Output beyond the limit is a malformed answer, and the command is killed."""
    with pytest.raises(SlurmOutputError, match="squeue printed more than 1000000 bytes") as caught:
        await run(("yes", "abc"), name="squeue", environment=ENVIRONMENT, timeout=20, limit=1_000_000)
    assert caught.value.raw.startswith("abc\nabc\n")
    assert children() == []


async def test_bytes_that_are_no_text_do_not_break_it() -> None:
    """Job names may contain any bytes."""
    answer = await run(("printf", r"a\377b"), name="printf", environment=ENVIRONMENT, timeout=20)
    assert answer.stdout == "a\ufffdb"


async def test_command_that_is_not_there_is_an_oserror() -> None:
    """A missing command raises OSError, for which the client has a message."""
    with pytest.raises(FileNotFoundError):
        await run(("/no/such/squeue",), name="squeue", environment=ENVIRONMENT, timeout=20)


async def test_death_by_signal_is_told() -> None:
    """The exit status is the negative signal number."""
    answer = await run(("sh", "-c", "kill -9 $$"), name="sh", environment=ENVIRONMENT, timeout=20)
    assert answer.code == -signal.SIGKILL


async def test_a_command_that_reads_nothing_leaves_no_message_of_python() -> None:
    """Its input is larger than a pipe holds; when it is killed, asyncio has no error that nobody retrieved."""
    messages: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: messages.append(context["message"]))

    with pytest.raises(SlurmUnavailable):
        await run(
            ("tail", "-f", "/dev/null"), name="sbatch", environment=ENVIRONMENT, timeout=0.3, stdin="x" * (1 << 20)
        )
    gc.collect()
    assert messages == []
