"""The client with stand-ins for Slurm's commands: small scripts that check their arguments and repeat recorded answers.

Real commands are tested in test_client_real.py.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from jupyterhub_gpuspawner.check.questions import accounting_names
from jupyterhub_gpuspawner.errors import (
    ConfigError,
    SlurmOutputError,
    SlurmUnavailable,
    SubmitRejected,
)
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.text import UnparsedField
from jupyterhub_gpuspawner.tasks import timeout
from tests.slurm.recorded import FOLDER, MARK, VERSIONS, Recorded, all_recorded, recorded, with_owner
from tests.snapshots import free_gpus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCRIPT = "#!/bin/sh\nsrun echo 'a b'\n"


class StandIns:
    """A folder with stand-ins for Slurm's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()

    def add(self, name: str, body: str) -> None:
        """Add a stand-in that runs these lines of shell."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def answering(self, name: str, expected: str, answer: Recorded) -> None:
        """Add a stand-in that prints a recorded answer, only for the arguments ``expected`` (a shell pattern)."""
        stem = shlex.quote(str(FOLDER / answer.version / answer.area / answer.name))
        self.add(
            name,
            f'case "$*" in {expected}) ;; *) echo "stand-in: unexpected $*" >&2; exit 97;; esac\n'
            f"cat {stem}.out 2>/dev/null; cat {stem}.err >&2 2>/dev/null; exit {answer.code}",
        )

    def client(self, **options: Any) -> SlurmClient:
        """A client that uses these commands."""
        return SlurmClient(Installation(bin_dir=str(self.folder), **options))


@pytest.fixture
def slurm(tmp_path: Path) -> StandIns:
    """An empty folder for stand-ins."""
    return StandIns(tmp_path / "bin")


# --- submit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["ok_parsable", "ok_cluster", "ok_stdin", "env_debug", "downp"])
async def test_job_id_of_every_accepted_form(slurm: StandIns, version: str, name: str) -> None:
    """For ``134``, ``138;rec`` and an id with much noise on stderr, the client returns the id."""
    answer = recorded(version, "sbatch", name)
    slurm.answering("sbatch", "--parsable", answer)
    assert await slurm.client().submit(SCRIPT) == answer.stdout.strip().partition(";")[0]


async def test_script_goes_to_stdin_and_environment_to_the_command(slurm: StandIns, tmp_path: Path) -> None:
    """The script arrives unchanged; the environment is the client's and the job's, without the hub's own variables."""
    slurm.add("sbatch", f"cat > {tmp_path}/script; env > {tmp_path}/env; echo 5")
    client = slurm.client(environment={"SLURM_CONF": "/etc/other.conf"})
    assert await client.submit(SCRIPT, environment={"JUPYTERHUB_API_TOKEN": "t"}) == "5"
    assert (tmp_path / "script").read_text() == SCRIPT
    environment = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    expected = {
        "PATH": f"{slurm.folder}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "SLURM_CONF": "/etc/other.conf",
        "JUPYTERHUB_API_TOKEN": "t",
    }
    if "TZ" in os.environ:
        expected["TZ"] = os.environ["TZ"]
    assert {
        name: value for name, value in environment.items() if name not in ("PWD", "_", "OLDPWD", "SHLVL")
    } == expected


async def test_prefix_stands_before_the_command(slurm: StandIns) -> None:
    """The prefix precedes sbatch's full path and its one argument, as a sudoers file without wildcards requires."""
    slurm.add("sbatch", "echo 5")
    slurm.add("as", f'[ "$*" = "-u alice {slurm.folder}/sbatch --parsable" ] || exit 97; shift 2; exec "$@"')
    prefix = (f"{slurm.folder}/as", "-u", "alice")
    assert await slurm.client().submit(SCRIPT, prefix=prefix) == "5"


@pytest.mark.parametrize("answer", [a for a in all_recorded("sbatch") if a.code], ids=lambda a: f"{a.version}-{a.name}")
async def test_every_recorded_refusal_is_a_rejection(slurm: StandIns, answer: Recorded) -> None:
    """Every rejection recorded from three versions becomes SubmitRejected with its message."""
    slurm.answering("sbatch", "--parsable", answer)
    with pytest.raises(SubmitRejected) as caught:
        await slurm.client().submit(SCRIPT)
    assert caught.value.stderr == answer.stderr.strip()[:2000]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("area", ["ctld_down", "ctld_stopped", "munge_down", "conf_missing", "other_gone"])
async def test_silent_slurm_is_unavailable(slurm: StandIns, version: str, area: str) -> None:
    """If Slurm is down, stopped, or without munge or configuration, every command raises the same error."""
    for command in ("sbatch", "scancel", "squeue", "scontrol", "sinfo"):
        name = "squeue" if area == "conf_missing" and command != "sbatch" else "sbatch"
        slurm.answering(command, "*", recorded(version, area, name))
    client = slurm.client()
    for question in (client.submit(SCRIPT), client.cancel("7"), client.jobs(["7"]), client.job("7"), client.snapshot()):
        with pytest.raises(SlurmUnavailable, match=r"^\w+ failed: "):
            await question


@pytest.mark.parametrize("stdout", ["", "Submitted", "12a", "٣"])
async def test_accepted_without_an_id_is_an_odd_answer(slurm: StandIns, stdout: str) -> None:
    """Exit code 0 without a job id is a malformed answer, not a rejection."""
    slurm.add("sbatch", f"echo '{stdout}'")
    with pytest.raises(SlurmOutputError, match="accepted the job but printed no job id"):
        await slurm.client().submit(SCRIPT)


async def test_sudo_that_asks_for_a_password_is_the_admins_error(slurm: StandIns) -> None:
    """The error names exec_prefix and says what to allow in sudoers."""
    slurm.add("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    slurm.add("sbatch", "echo 5")
    with pytest.raises(ConfigError, match="exec_prefix: sbatch was not run: sudo asks for a password"):
        await slurm.client().submit(SCRIPT, prefix=(f"{slurm.folder}/sudo", "-u", "alice"))


# --- cancel -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["known_running", "known_pending", "finished", "again", "unknown"])
async def test_cancelling_what_is_gone_is_a_success(slurm: StandIns, version: str, name: str) -> None:
    """Cancelling succeeds for running, pending, finished, already cancelled and unknown jobs."""
    slurm.answering("scancel", "7", recorded(version, "scancel", name))
    await slurm.client().cancel("7")


@pytest.mark.parametrize("version", VERSIONS)
async def test_somebody_elses_job_is_an_error(slurm: StandIns, version: str) -> None:
    """Exit code 210 means that the prefix switches to the wrong user."""
    slurm.answering("scancel", "118", recorded(version, "scancel", "other_user"))
    with pytest.raises(
        ConfigError, match=r"exec_prefix: scancel is not allowed to cancel job 118: .*Access/permission denied"
    ):
        await slurm.client().cancel("118")


@pytest.mark.parametrize("job_id", ["", "7 8", "-u", "7;rec", "٣", "7\n", "1" * 11])
async def test_job_id_that_is_none_reaches_no_command(slurm: StandIns, job_id: str) -> None:
    """A restored or reported id that is not a number is refused before any command runs."""
    client = slurm.client()  # has no stand-ins: running a command would raise a different error
    for question in (client.cancel(job_id), client.job(job_id), client.jobs([job_id])):
        with pytest.raises(SlurmOutputError, match="is not a valid job id"):
            await question


# --- jobs, job, tagged --------------------------------------------------------------------------


def squeue_of(folder: Path, options: str, answer: Recorded) -> str:
    """A stand-in for squeue with a recorded answer, and the mark that it is asked for."""
    text = folder / answer.name
    text.write_text(with_owner(answer.stdout))
    return f"""
for last; do :; done
case "$*" in "{options}"*) ;; *) echo "stand-in: unexpected $*" >&2; exit 97;; esac
[ "$SLURM_TIME_FORMAT" = %s ] || exit 98
sed "s/{MARK}/${{last##*|}}/g" {text}
"""


@pytest.mark.parametrize("version", VERSIONS)
async def test_one_squeue_for_all_jobs(slurm: StandIns, tmp_path: Path, version: str) -> None:
    """Known ids are returned, unknown ones are absent; each id is queried once, in order."""
    options, answer = "--local -h -a -t all -j 1,2,999999 -O JobID:|,", recorded(version, "hub", "squeue_j")
    slurm.add("squeue", squeue_of(tmp_path, options, answer))
    statuses = await slurm.client().jobs(["999999", "2", "1", "2"])
    assert {job_id: status.phase for job_id, status in statuses.items()} == {"1": Phase.RUNNING, "2": Phase.ENDED}


async def test_every_question_draws_its_own_mark(slurm: StandIns, tmp_path: Path) -> None:
    """Each query has its own mark, so marks cannot be predicted."""
    slurm.add("squeue", f'for last; do :; done; echo "${{last##*|}}" >> {tmp_path}/marks')
    client = slurm.client()
    assert [await client.jobs(["1"]), await client.tagged("x")] == [{}, {}]
    first, second = (tmp_path / "marks").read_text().split()
    assert first != second
    assert len(first) == len(second) == 16


@pytest.mark.parametrize("version", VERSIONS)
async def test_single_unknown_job_is_a_good_empty_answer(slurm: StandIns, version: str) -> None:
    """'Invalid job id specified' with exit code 1 means that there is no such job."""
    slurm.answering("squeue", "'--local -h -a -t all -j 999999 '*", recorded(version, "hub", "squeue_j_unknown"))
    slurm.answering("scontrol", "'--local show job -o 999999'", recorded(version, "hub", "job_unknown"))
    assert await slurm.client().jobs(["999999"]) == {}
    assert await slurm.client().job("999999") is None


async def test_no_ids_ask_nothing(slurm: StandIns) -> None:
    """No command is run for an empty set of ids."""
    assert await slurm.client().jobs([]) == {}


@pytest.mark.parametrize("version", VERSIONS)
async def test_jobs_of_a_tag(slurm: StandIns, tmp_path: Path, version: str) -> None:
    """A query by tag returns jobs whose comment begins with it, including ended ones."""
    answer = recorded(version, "hub", "squeue_all")
    slurm.add("squeue", squeue_of(tmp_path, "--local -h -a -t all -O JobID:|,", answer))
    assert list(await slurm.client().tagged("gpuspawner:hub:alice:")) == ["2", "1"]
    assert list(await slurm.client().tagged("gpuspawner:hub:alice:lab")) == ["2"]
    assert list(await slurm.client().tagged("gpuspawner:other:")) == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_job_in_full(slurm: StandIns, version: str) -> None:
    """``scontrol show job -d -o`` of one id also gives the job's allocation on its node."""
    slurm.answering("scontrol", "'--local show job -d -o 1'", recorded(version, "hub", "job_running"))
    job = await slurm.client().job("1", allocations=True)
    assert job is not None
    assert (job.batch_host, job.stdout_path, [str(g) for g in job.allocations[0].gres]) == (
        "g1",
        "/cl/jobs/1.log",
        ["gpu:k80:2"],
    )


async def test_what_sixty_thousand_jobs_hold_is_read(slurm: StandIns) -> None:
    """Slurm shows each, also a pending one, with about 1,150 bytes: more than 64 MiB of all."""
    fields = recorded("24.11", "scontrol", "job_run_gpu2").stdout.split()[1:]
    (slurm.folder / "fields").write_text(f" {' '.join(fields)}")
    slurm.add("scontrol", f"""awk '{{ for (n = 1; n <= 60000; n++) print "JobId=" n $0 }}' {slurm.folder}/fields""")
    allocations = await slurm.client().allocations()

    assert len(allocations) == 60_000
    assert set(allocations.values()) == {allocations["1"]}


async def test_failure_with_unknown_words_is_no_answer_and_quotes_them(slurm: StandIns) -> None:
    """An unknown exit code does not mean that the job is gone."""
    slurm.add("squeue", "echo 'squeue: error: sunspots' >&2; exit 9")
    with pytest.raises(SlurmUnavailable, match="squeue failed with exit code 9: squeue: error: sunspots"):
        await slurm.client().jobs(["7"])


async def test_answer_to_another_question_is_odd(slurm: StandIns) -> None:
    """An answer with other columns, for example from a wrapper that ignores the requested ones, is detected."""
    slurm.add("squeue", "echo '  JOBID PARTITION NAME'")
    with pytest.raises(SlurmOutputError) as caught:
        await slurm.client().jobs(["7"])
    assert caught.value.raw == "  JOBID PARTITION NAME\n"


SQUEUE = """echo "$*" | grep -q only-job-state && asked=states || asked=whole
[ $asked = whole ] || [ {version} = 24.05 ] || {{ echo "squeue: unrecognized option '--only-job-state'" >&2; exit 1; }}
echo $asked >> {folder}/asked
for last; do :; done; mark=${{last##*|}}
for job in 7:RUNNING 8:$(cat {folder}/state); do
    [ $asked = whole ] || printf '%s|%s\\n' ${{job%:*}} ${{job#*:}}
    [ $asked = states ] ||
        printf '%s|%s|None|1|2|g1|g1|gpu|ada|0:0|1001|%s|hub|%s|name|%s\\n' ${{job%:*}} ${{job#*:}} $mark $mark $mark
done"""
"""Job 7 runs, and the state of job 8 is in a file."""


@pytest.mark.parametrize(
    ("version", "queries"),
    [("24.05", ["whole", "states", "states", "whole"]), ("23.11", ["whole", "whole", "whole"])],
)
async def test_of_several_jobs_the_states_alone_are_asked_for_until_one_changes(
    slurm: StandIns, tmp_path: Path, version: str, queries: list[str]
) -> None:
    """As far as squeue can: the whole answer costs by the jobs of the cluster."""
    slurm.add("squeue", SQUEUE.format(folder=tmp_path, version=version))
    client, states = slurm.client(), []
    for state in ("PENDING", "PENDING", "RUNNING"):
        (tmp_path / "state").write_text(state)
        states.append({job: status.state for job, status in (await client.jobs(["7", "8"])).items()})

    assert states == [{"7": "RUNNING", "8": state} for state in ("PENDING", "PENDING", "RUNNING")]
    assert (tmp_path / "asked").read_text().split() == queries


async def test_what_one_job_alone_is_asked_for_is_not_forgotten(slurm: StandIns, tmp_path: Path) -> None:
    """As a time limit that the hub has raised: the states are still the same."""
    (tmp_path / "state").write_text("PENDING")
    slurm.add("squeue", SQUEUE.format(folder=tmp_path, version="24.05"))
    client = slurm.client()
    await client.jobs(["7", "8"])
    slurm.add("squeue", SQUEUE.format(folder=tmp_path, version="24.05").replace("|1|2|", "|1|3600|"))
    alone = await client.jobs(["7"])

    assert (await client.jobs(["7", "8"]))["7"] == alone["7"]
    assert alone["7"].ends_at == 3600
    assert (tmp_path / "asked").read_text().split() == ["whole", "whole", "states"]


async def test_observer_is_told_of_each_command(slurm: StandIns) -> None:
    """The observer gets name and exit status, or None without an answer; missing commands are not counted."""
    calls: list[tuple[str, int | None]] = []
    slurm.add("squeue", "exit 0")
    slurm.add("scancel", "exit 9")
    slurm.add("scontrol", "sleep 100")

    def observe(command: str, seconds: float, status: int | None) -> None:
        assert seconds >= 0
        calls.append((command, status))

    client = slurm.client(observe=observe, timeout=1.0)
    await client.jobs(["7"])
    for failing in (client.cancel("7"), client.job("7"), client.version()):
        with pytest.raises(SlurmUnavailable):
            await failing
    assert calls == [("squeue", 0), ("scancel", 9), ("scontrol", None)]


# --- nodes and the cluster ----------------------------------------------------------------------


async def test_address_is_slurms_and_is_kept(slurm: StandIns, tmp_path: Path) -> None:
    """The address is NodeAddr, independent of DNS; the second call runs no command."""
    slurm.add(
        "scontrol",
        f'[ "$*" = "--local show node -o g1" ] || exit 97; echo x >> {tmp_path}/asked\n'
        "echo 'NodeName=g1 CPUTot=24 NodeAddr=10.1.2.3 NodeHostName=head State=IDLE'",
    )
    client = slurm.client()
    assert [await client.address("g1"), await client.address("g1")] == ["10.1.2.3", "10.1.2.3"]
    assert (tmp_path / "asked").read_text() == "x\n"


async def test_address_of_a_cloud_node_is_that_of_its_last_boot(
    slurm: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within minutes it may be powered down and boot again at another address."""
    (tmp_path / "address").write_text("10.1.2.3")
    slurm.add("scontrol", f'echo "NodeName=g1 CPUTot=24 NodeAddr=$(cat {tmp_path}/address) State=IDLE+CLOUD"')
    client = slurm.client()
    addresses = [await client.address("g1")]
    (tmp_path / "address").write_text("10.1.2.4")
    addresses.append(await client.address("g1"))
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 60)  # it goes on, since the event loop has it, too
    addresses.append(await client.address("g1"))

    assert addresses == ["10.1.2.3", "10.1.2.3", "10.1.2.4"]


async def test_address_is_asked_for_once_by_a_whole_class(slurm: StandIns, tmp_path: Path) -> None:
    """Thirty servers that start on two nodes cause two queries; a failed query does not affect later ones."""
    slurm.add(
        "scontrol",
        f"echo $5 >> {tmp_path}/asked; [ $5 = g3 ] && [ ! -e {tmp_path}/up ] && exit 1\n"
        'echo "NodeName=$5 CPUTot=24 NodeAddr=10.0.0.$5 NodeHostName=head State=IDLE"',
    )
    client = slurm.client()
    addresses = await asyncio.gather(*(client.address(f"g{n % 2}") for n in range(30)))
    assert addresses == [f"10.0.0.g{n % 2}" for n in range(30)]
    assert sorted((tmp_path / "asked").read_text().split()) == ["g0", "g1"]

    failed = await asyncio.gather(client.address("g3"), client.address("g3"), return_exceptions=True)
    assert [type(error) for error in failed] == [SlurmUnavailable] * 2
    (tmp_path / "up").touch()
    assert await client.address("g3") == "10.0.0.g3"


@pytest.mark.parametrize("version", VERSIONS)
async def test_unknown_node_has_no_address(slurm: StandIns, version: str) -> None:
    """Slurm prints 'not found' on stdout."""
    slurm.answering("scontrol", "'--local show node -o nosuch'", recorded(version, "scontrol", "node_unknown"))
    with pytest.raises(SlurmOutputError, match="Slurm knows no node nosuch"):
        await slurm.client().address("nosuch")


@pytest.mark.parametrize("node", ["", "-o", "g1 g2", "g[1-2]", "../x", "g1\n"])
async def test_name_that_is_none_is_not_asked_for(slurm: StandIns, node: str) -> None:
    """A name that does not match the grammar of node names is refused before any command runs."""
    with pytest.raises(SlurmOutputError, match="is not a valid node name"):
        await slurm.client().address(node)


@pytest.mark.parametrize("version", VERSIONS)
async def test_snapshot_is_four_questions(slurm: StandIns, version: str) -> None:
    """A snapshot queries nodes, partitions including hidden ones, reservations, and pending or running jobs.

    The first one also queries the defaults in slurm.conf.
    """
    folder = FOLDER / version / "scontrol"
    slurm.add(
        "scontrol",
        f"""case "$*" in
        "--local show node -a -d -o") cat {folder}/node_a_o.out;;
        "--local show partition -a -o") cat {folder}/partition_a_o.out;;
        "--local show reservation -a -o") cat {folder}/reservation_o.out;;
        "show config") echo "PrivateData = none"; echo "DefMemPerCPU = 1000"; echo "EnforcePartLimits = ALL";
            [ ! -e {slurm.folder}/asked ] || exit 98; touch {slurm.folder}/asked;;
        *) echo "stand-in: unexpected $*" >&2; exit 97;; esac""",
    )
    head = "7|N/A|PENDING|Resources|alice|gpu|3||1|1|1|mem=1G|1|N/A|N/A|5:00"
    gres = "N/A|$mark|N/A|$mark|N/A|$mark|N/A|$mark|(null)"
    slurm.add(
        "squeue",
        f"""case "$*" in
        "--local -h -a -t PD,CF,R,CG,S,ST -O JobID:|,"*) mark=${{7##*|}};;
        *) echo "stand-in: unexpected $*" >&2; exit 97;; esac
        printf '%s' "{head}|$mark|{gres}|$mark|proj|$mark|lab|$mark|(null)|$mark
" """,
    )
    before = time.time()
    client = slurm.client()
    snapshot = await client.snapshot()
    assert (await client.snapshot()).config is snapshot.config
    assert (snapshot.config.default_memory_per_cpu_mib, snapshot.config.enforces_limits_of_all) == (1000, True)
    assert [(job.job_id, job.account, job.partition) for job in snapshot.jobs] == [("7", "proj", "gpu")]
    assert before <= snapshot.taken_at <= time.time()
    assert (len(snapshot.nodes), snapshot.partition_by_name["hid"].hidden, len(snapshot.reservations)) == (
        17 if version == "22.05" else 19,
        True,
        4,
    )
    assert free_gpus(snapshot, "gpu")[""] == 1


@pytest.mark.parametrize(("version", "number"), [("22.05", "22.05.8"), ("24.11", "24.11.5"), ("26.05", "26.05.5")])
async def test_version_of_the_commands(slurm: StandIns, version: str, number: str) -> None:
    """``slurm-wlm 22.05.8`` is parsed as 22.05.8."""
    slurm.answering("sinfo", "--version", recorded(version, "sinfo", "version"))
    assert await slurm.client().version() == number


# --- commands that are missing, hang, or run in large numbers -----------------------------------


QUESTIONS: list[Callable[[SlurmClient], Any]] = [
    lambda client: client.jobs(["7"]),
    lambda client: client.submit(SCRIPT),
    lambda client: client.version(),
]


@pytest.mark.parametrize("question", QUESTIONS)
async def test_missing_command_names_itself_and_the_setting(
    slurm: StandIns, question: Callable[[SlurmClient], Any]
) -> None:
    """The error names the path that was tried, and slurm_bin_dir."""
    with pytest.raises(SlurmUnavailable, match=f"Slurm's command '{slurm.folder}/s.*' does not exist.*slurm_bin_dir"):
        await question(slurm.client())


async def test_command_that_may_not_be_run_is_missing_too(slurm: StandIns) -> None:
    """A file without execute permission is reported as missing."""
    slurm.add("squeue", "true")
    (slurm.folder / "squeue").chmod(0o644)
    with pytest.raises(SlurmUnavailable, match="does not exist or cannot be executed"):
        await slurm.client().jobs(["7"])


async def test_missing_prefix_is_the_admins_error(slurm: StandIns) -> None:
    """The error names exec_prefix and the missing command."""
    slurm.add("sbatch", "echo 5")
    with pytest.raises(ConfigError, match="exec_prefix: The command 'nosuchsudo' does not exist"):
        await slurm.client().submit(SCRIPT, prefix=("nosuchsudo",))


async def test_command_is_found_by_the_hubs_path_not_the_jobs(slurm: StandIns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bin_dir the hub's PATH is searched; the job's PATH may differ and lack Slurm."""
    slurm.add("sbatch", "echo 5")
    monkeypatch.setenv("PATH", f"{slurm.folder}:/usr/bin:/bin")
    assert await SlurmClient(Installation()).submit(SCRIPT, environment={"PATH": "/usr/bin:/bin"}) == "5"


async def test_stand_in_squeue_that_hangs_is_given_up(slurm: StandIns) -> None:
    """A missing slurm.conf blocks a command for a minute; the client gives up sooner."""
    slurm.add("squeue", "sleep 100")
    with pytest.raises(SlurmUnavailable, match=r"squeue did not respond within 0\.2 s"):
        await slurm.client(timeout=0.2).jobs(["7"])


async def test_cancelled_question_is_cancelled(slurm: StandIns, tmp_path: Path) -> None:
    """CancelledError passes through the client, which then runs the next command."""
    runs = tmp_path / "runs"
    slurm.add("squeue", f"touch {runs}; sleep 100")
    slurm.add("scancel", "true")
    client = slurm.client(limit=1)
    task = asyncio.create_task(client.jobs(["7"]))
    while not runs.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await client.cancel("7")


async def test_no_more_commands_at_once_than_the_limit(slurm: StandIns, tmp_path: Path) -> None:
    """Of twelve submissions at most three run at once; each counts those running at the same time."""
    running = tmp_path / "running"
    running.mkdir()
    slurm.add("sbatch", f"cat >/dev/null; touch {running}/$$; ls {running} | wc -l; sleep 0.05; rm {running}/$$")
    client = slurm.client(limit=3)
    counts = [int(count) for count in await asyncio.gather(*(client.submit(SCRIPT) for _ in range(12)))]
    assert len(counts) == 12
    assert max(counts) <= 3


async def test_the_question_about_all_jobs_waits_for_no_other_command(slurm: StandIns, tmp_path: Path) -> None:
    """A submission that hangs has the only turn, and the watcher is answered all the same; a cancellation waits."""
    slurm.add("sbatch", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo 7")
    slurm.add("squeue", "true")
    slurm.add("scancel", "true")
    client = slurm.client(limit=1)
    submitting = asyncio.create_task(client.submit(SCRIPT))
    await asyncio.sleep(0)
    cancelling = asyncio.create_task(client.cancel("8"))

    assert await client.jobs(["7"]) == {}
    assert not submitting.done()
    assert not cancelling.done()
    (tmp_path / "go").touch()
    assert await submitting == "7"
    await cancelling


@pytest.mark.parametrize(
    ("sacctmgr", "preempted"),
    [
        (
            "printf '%s\\n' 'normal|scavenger,Idle' 'scavenger|' 'idle|'",
            {"normal": {"scavenger", "idle"}, "scavenger": set(), "idle": set()},
        ),
        ("echo 'sacctmgr: error: Problem talking to the database: Connection refused' >&2; exit 1", None),
    ],
)
async def test_a_snapshot_has_which_qos_preempt_which(slurm: StandIns, sacctmgr: str, preempted: Any) -> None:
    """slurmdbd is asked once for several snapshots, and need not answer."""
    folder = FOLDER / "22.05" / "scontrol"
    slurm.add(
        "scontrol",
        f"""case "$*" in
        "--local show node -a -d -o") cat {folder}/node_a_o.out;;
        "--local show partition -a -o") cat {folder}/partition_a_o.out;;
        "--local show reservation -a -o") cat {folder}/reservation_o.out;;
        "show config") echo "PrivateData = none"; echo "PreemptType = preempt/qos";;
        *) exit 97;; esac""",
    )
    slurm.add("squeue", "exit 0")
    once = f"[ ! -e {slurm.folder}/asked ] || exit 98; touch {slurm.folder}/asked"
    slurm.add("sacctmgr", f'[ "$*" = "-n -P show qos format=name,preempt" ] || exit 97; {once}; {sacctmgr}')
    client = slurm.client()
    preempted_qos = [(await client.snapshot()).preempted_qos for _ in range(2)]

    assert preempted_qos == [preempted, preempted]


async def test_a_configuration_that_is_not_understood_is_no_empty_one(slurm: StandIns) -> None:
    """Its limits are unread, and that is told: nobody takes it for a cluster without limits."""
    folder = FOLDER / "22.05" / "scontrol"
    slurm.add(
        "scontrol",
        f"""case "$*" in
        "--local show node -a -d -o") cat {folder}/node_a_o.out;;
        "--local show partition -a -o") cat {folder}/partition_a_o.out;;
        "--local show reservation -a -o") cat {folder}/reservation_o.out;;
        *) echo "MaxMemPerCPU = 10";; esac""",
    )
    slurm.add("squeue", "exit 0")
    snapshot = await slurm.client().snapshot()

    assert (snapshot.unread, snapshot.partial) == ((UnparsedField("configuration", "slurm.conf", ""),), True)


def accounting_of(slurm: StandIns, version: str, *, private: str = "none", storage: str = "slurmdbd") -> None:
    """A cluster with accounting whose commands give recorded answers."""
    folder = FOLDER / version / "accounting"
    slurm.add(
        "scontrol",
        f"""[ "$*" = "show config" ] || exit 97; echo "PrivateData = {private}"; echo "ClusterName = rec"
        echo "AccountingStorageType = accounting_storage/{storage}"; echo "SlurmUser = nobody(65534)"
        echo "AccountingStorageEnforce = associations,limits,qos" """,
    )
    slurm.add(
        "sacctmgr",
        f"""case "$*" in
        "-n -P show assoc where cluster=rec user= format=account") cut -d '|' -f 1 {folder}/accounts.out;;
        "-n -P show qos format=name,maxtres,maxwall") cut -d '|' -f 1,7,8 {folder}/qos.out;;
        *) echo "stand-in: unexpected $*" >&2; exit 97;; esac""",
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_accounts_and_qos_of_the_cluster(slurm: StandIns, version: str) -> None:
    """By their names, as slurmdbd lists them, with what each QOS allows one job."""
    accounting_of(slurm, version)
    names = await accounting_names(slurm.client())

    assert names is not None
    assert names.accounts >= {"root", "dept", "training"}
    assert names.qos is not None
    assert {name: names.qos[name] for name in ("normal", "lesson")} == {
        "normal": {},
        "lesson": {("MaxWallPJ", ""): 120, ("MaxTRESPJ", "cpu"): 8},
    }


async def test_without_slurmdbd_there_is_nothing_to_ask(slurm: StandIns) -> None:
    """And no command runs for it."""
    accounting_of(slurm, "24.11", storage="none")
    slurm.add("sacctmgr", "exit 97")

    assert await accounting_names(slurm.client()) is None


async def test_hidden_associations_are_not_taken_for_missing_ones(
    slurm: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PrivateData shows an ordinary account its own associations alone."""
    accounting_of(slurm, "24.11", private="users")
    slurm.add("sacctmgr", "echo None")
    monkeypatch.setattr("os.geteuid", lambda: 12345)

    with pytest.raises(ConfigError, match="PrivateData hides the associations"):
        await accounting_names(slurm.client())


async def test_what_cannot_be_killed_counts_though_its_caller_gave_up_waiting(
    slurm: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user whose command hangs gets no other until it ends, also if the caller was cancelled a second time."""
    started, signals = tmp_path / "pid", list[int]()
    slurm.add("scancel", f"echo $$ > {started}.new; mv {started}.new {started}; exec sleep 100")
    slurm.add("sbatch", "true")
    installation = Installation(bin_dir=str(slurm.folder), limit=2, timeout=60)

    def refuse(_process: int, number: int) -> None:
        signals.append(number)
        raise PermissionError  # what a hub that is not root gets for a process of sudo's

    async def until(true: Callable[[], bool]) -> None:
        async with timeout(30):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def refusal() -> SlurmUnavailable | None:
        try:
            await installation.run("sbatch", prefix=("env",))
        except SlurmUnavailable as error:
            return error
        return None

    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refuse)
        patch.setattr(os, "killpg", refuse)
        command = asyncio.create_task(installation.run("scancel", prefix=("env",)))
        await until(started.exists)
        command.cancel()
        await until(lambda: bool(signals))
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        async with timeout(30):
            while (error := await refusal()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    pid = int(started.read_text())
    assert (error.message, error.hint) == (
        "1 commands are hanging and cannot be killed; no others are run until one of them ends.",
        f"Check these processes on the hub's machine: {pid}.",
    )
    os.kill(pid, signal.SIGKILL)
    async with timeout(30):
        while await refusal() is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
