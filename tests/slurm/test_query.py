"""A hub whose questions go to the script ``query`` on a login node, by a stand-in for ssh."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.check.questions import accounting_names, licenses, siblings
from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.accounts import LoginNodeAccounts, account_of
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import CommandMissing, Installation
from jupyterhub_gpuspawner.slurm.job import Account, JobIdentity
from jupyterhub_gpuspawner.slurm.login_node import request
from jupyterhub_gpuspawner.slurm.messages import LoginNodeUnreachable
from jupyterhub_gpuspawner.slurm.process import Answer
from jupyterhub_gpuspawner.slurm.squeue import JOBS

WRAPPERS = Path(__file__).parents[2] / "config" / "wrappers"
SSH = """#!/bin/sh
# as ssh does: options, a destination, and the other words, joined by blanks, for the account's shell
shift 1
[ ! -e {folder}/down ] || {{ echo 'ssh: connect to host login port 22: Connection refused' >&2; exit 255; }}
exec env -i PATH=/usr/bin:/bin sh -c "$*"
"""
ENTRY = "ada:x:1001:1001::/data/home/ada:/bin/zsh"


class LoginNode:
    """A folder with a stand-in for ssh, the script ``query``, and stand-ins for what it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.add("ssh", SSH.format(folder=folder))
        text = (WRAPPERS / "query").read_text()
        text = text.replace('SLURM = "/usr/bin"', f'SLURM = "{folder}"').replace('"/usr/bin:/bin"', f'"{folder}"')
        self.add("query", text)
        self.add("id", "#!/bin/sh\necho 'uid=990(hubreader) gid=990(hubreader) groups=990(hubreader)'\n")
        self.add("getent", f"#!/bin/sh\ncase $2 in ada) echo {ENTRY};; toor) echo toor:x:0:0::/:;; *) exit 2;; esac\n")

    def add(self, name: str, text: str) -> None:
        """Add a program."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    @property
    def installation(self) -> Installation:
        """The hub's, which reaches all of it by ssh."""
        return Installation(wrapper_dir=str(self.folder), query_prefix=(f"{self.folder}/ssh", "login"))


@pytest.fixture
def login(tmp_path: Path) -> LoginNode:
    """A login node that answers."""
    return LoginNode(tmp_path)


async def test_a_question_arrives_with_its_words_and_an_environment_of_its_own(login: LoginNode) -> None:
    """Blanks and characters of a shell are data, and times are seconds, whatever the time zone of the login node."""
    login.add("getent", '#!/bin/sh\nprintf "%s|" "$@"; echo "$SLURM_TIME_FORMAT ${TZ-no zone} $LANG"\n')
    answer = await login.installation.run("getent", "passwd", "DOM\\ada $(id) 'q'")

    assert (answer.code, answer.stdout) == (0, "passwd|DOM\\ada $(id) 'q'|%s no zone C.UTF-8\n")


async def test_no_question_lasts_for_ever(login: LoginNode) -> None:
    """The kernel ends it after the longest time for which a hub waits (600 s)."""
    login.add("scontrol", f"#!{sys.executable} -I\nimport signal\nprint(signal.alarm(0))\n")
    answer = await login.installation.run("scontrol", "ping")

    assert 600 < int(answer.stdout) <= 660


async def test_a_login_node_that_is_away_is_no_answer(login: LoginNode) -> None:
    """Servers are kept, as when slurmctld is down; a later question is answered again."""
    client = SlurmClient(login.installation)
    login.add("squeue", "#!/bin/sh\n")
    (login.folder / "down").touch()
    with pytest.raises(LoginNodeUnreachable, match="squeue has no answer: the login node cannot be reached"):
        await client.jobs(["7"])
    (login.folder / "down").unlink()

    assert await client.jobs(["7"]) == {}


async def test_a_submission_whose_connection_is_lost_may_have_made_a_job(login: LoginNode) -> None:
    """It has no answer, so the hub looks for the job; it is not taken for a refusal."""
    login.add("submit", "#!/bin/sh\ncat > /dev/null; echo 'Connection to login closed by remote host.' >&2; exit 255\n")
    client = SlurmClient(login.installation)

    with pytest.raises(LoginNodeUnreachable, match="sbatch has no answer: the login node cannot be reached by ssh"):
        await client.submit("#!/bin/sh\n", prefix=(f"{login.folder}/ssh", "login"))


async def test_a_missing_script_is_named(login: LoginNode) -> None:
    """With the message of the login node's shell."""
    (login.folder / "query").unlink()

    with pytest.raises(CommandMissing, match=r"squeue did not run on the login node: .*query.* not found"):
        await login.installation.run("squeue")


@pytest.mark.parametrize("cluster", ["", "cedar"])
async def test_all_that_the_hub_asks_is_permitted(login: LoginNode, cluster: str) -> None:
    """By the client, and about accounts; what is asked and refused would be missing at a site alone."""
    asked: set[tuple[str, int | None]] = set()
    slurm = Installation(
        wrapper_dir=str(login.folder),
        query_prefix=login.installation.query_prefix,
        cluster=cluster,
        observe=lambda command, _seconds, code: asked.add((command, code)),
    )
    for name in ("squeue", "scontrol", "sinfo", "sacctmgr"):
        login.add(name, ANSWERS)
    client, uid = SlurmClient(slurm), JobIdentity(owner="ada", uid=1001)
    questions: list[Awaitable[Any]] = [
        client.jobs(["7"]),
        client.jobs(["7", "8"]),
        client.every_job(),
        client.jobs_of_start(uid),
        client.job("7"),
        client.job("7", allocations=True),
        client.snapshot(),
        client.allocations(),
        client.address("g1.cluster"),
        client.config(),
        siblings(client),
        licenses(client),
        accounting_names(client),
        client.sees_jobs_of("ben"),
        client.account(),
        client.version(),
        LoginNodeAccounts(slurm).of("ada"),
        slurm.run("scontrol", "ping"),
    ]
    await asyncio.gather(*questions, return_exceptions=True)  # some answers are none
    await client.jobs(["7", "8"])  # their states alone

    assert asked == {(command, 0) for command in ("squeue", "scontrol", "sinfo", "sacctmgr", "getent", "id")}


ANSWERS = """#!/bin/sh
# a site with all that makes the hub ask for more
case "$*" in
*config*) echo 'PrivateData = accounts'; echo 'AccountingStorageType = accounting_storage/slurmdbd'
    echo 'AccountingStorageEnforce = associations,limits,qos'; echo 'PreemptType = preempt/qos'
    echo 'SlurmUser = slurm(64030)'; echo 'ClusterName = cedar' ;;
*AdminLevel*) echo Administrator ;;
*node*) echo 'NodeName=g1 State=IDLE CPUTot=4' ;;
*partition*) echo 'PartitionName=gpu Nodes=g1' ;;
*reservation*) echo 'No reservations in the system' ;;
esac
"""


async def test_a_missing_ssh_is_named_with_its_setting() -> None:
    """The hub's machine has none."""
    with pytest.raises(ConfigError, match=r"^query_prefix: The command 'no-ssh' does not exist"):
        await Installation(wrapper_dir="/x", query_prefix=("no-ssh", "login")).run("squeue")


async def test_the_account_that_asks_is_that_of_the_login_node(login: LoginNode) -> None:
    """Slurm shows that account its own jobs."""
    login.add("scontrol", "#!/bin/sh\necho 'PrivateData = jobs'; echo 'SlurmUser = slurm(64030)'\n")
    client = SlurmClient(login.installation)

    assert (await client.account(), await client.sees_jobs_of("hubreader")) == ("hubreader", True)


async def test_an_account_is_that_of_the_login_node(login: LoginNode) -> None:
    """Home, shell and uid, so that the hub's machine needs no account; with a home of its own as well."""
    accounts = LoginNodeAccounts(login.installation)

    assert await account_of("ada", cluster=accounts) == Account("ada", "/data/home/ada", "/bin/zsh", 1001)
    assert await account_of("ada", home="/h", cluster=accounts) == Account("ada", "/h", uid=1001)
    assert await account_of("eve", home="/h", cluster=accounts) == Account("eve", "/h")
    with pytest.raises(ConfigError, match="There is no account 'eve' on the login node"):
        await account_of("eve", cluster=accounts)
    with pytest.raises(ConfigError, match="'toor' is an account of uid 0"):
        await account_of("toor", home="/h", cluster=accounts)


async def test_a_login_node_that_is_away_says_nothing_about_an_account(login: LoginNode) -> None:
    """The start fails with a message that says so; a known account is kept for a minute."""
    accounts = LoginNodeAccounts(login.installation)
    await account_of("ada", cluster=accounts)
    (login.folder / "down").touch()

    assert (await account_of("ada", cluster=accounts)).uid == 1001
    with pytest.raises(SlurmUnavailable):
        await account_of("bob", cluster=accounts)


COLUMNS = JOBS.columns("0123456789abcdef")
LIST = ("squeue", "--local", "-h", "-a", "-t", "all")
ALLOWED = [
    (*LIST, "-O", COLUMNS),
    ("squeue", "--clusters=cedar", *LIST[1:], "-j", "7,8", "-O", COLUMNS),
    ("sinfo", "--version"),
    ("scontrol", "ping"),
    ("scontrol", "--local", "show", "job", "-o", "7"),
    ("scontrol", "--clusters=cedar", "--local", "show", "job", "-d", "-o", "7"),
    ("sacctmgr", "-n", "-P", "show", "qos", "format=name,preempt"),
    ("getent", "passwd", "ada"),
    ("id",),
]
SHADOW = "/etc/shadow"
REFUSED = [
    ("scontrol", "update", "JobId=7", "TimeLimit=1"),
    ("scontrol", "-M", "show", "update", "JobId=7"),
    ("scontrol", "--clusters", "show", "update", "JobId=7"),
    ("scontrol", "--clusters=cedar", "update", "JobId=7", "TimeLimit=1"),
    ("scontrol", "--clusters=show"),
    ("scontrol", "-u", "show", "requeue", "7"),
    ("scontrol",),
    ("scontrol", "--local"),
    ("scontrol", "show", "hostlist", SHADOW),
    ("scontrol", "show", "hostlistsorted", SHADOW),
    ("scontrol", "show", "hostnames", SHADOW),
    ("scontrol", "show", "config", SHADOW),
    ("scontrol", "show", "include", SHADOW),
    ("scontrol", "--local", "show", "hostlist", "-o", SHADOW),
    ("scontrol", "--local", "show", "node", "-o", SHADOW),
    ("scontrol", "--local", "show", "job", "-o", SHADOW),
    ("scontrol", "--local", "show", "job", "-o", "7", "8"),
    ("scontrol", "write", "batch_script", "7", "/tmp/x"),
    ("scontrol", "--clusters=../x", "ping"),
    ("scontrol", "-Q", "ping"),
    ("sacctmgr", "-n", "delete", "user", "ada"),
    ("sacctmgr", "-i", "show"),
    ("sacctmgr", "-n", "-P", "show", "qos", "format=Name", "dump", "/tmp/x"),
    ("sacctmgr", "dump", "cedar", "file=/tmp/x"),
    ("sacctmgr", "load", SHADOW),
    ("sacctmgr", "-n", "-P", "show", "user", "where", "name=/etc/shadow", "format=AdminLevel"),
    ("squeue",),
    ("squeue", "--iterate=1"),
    ("squeue", "-w", SHADOW),
    ("squeue", f"--nodelist={SHADOW}"),
    (*LIST, "-O", SHADOW),
    (*LIST, "-j", SHADOW, "-O", COLUMNS),
    (*LIST, "-u", SHADOW, "-O", COLUMNS),
    (*LIST, "-O", COLUMNS, "-w", SHADOW),
    ("sinfo", "-n", SHADOW),
    ("sinfo", "--version", "-n", SHADOW),
    ("sshare", "-n"),
    ("sacct", "-f", SHADOW),
    ("sbatch", "--wrap=id"),
    ("scancel", "7"),
    ("getent", "shadow", "ada"),
    ("getent", "passwd", "-s"),
    ("getent", "passwd", SHADOW),
    ("getent", "passwd"),
    ("id", "-u"),
    ("sh", "-c", "id"),
    ("../bin/sh",),
    ("",),
]


@pytest.mark.parametrize("words", [*ALLOWED, *REFUSED], ids=" ".join)
def test_the_script_runs_what_only_reads(login: LoginNode, words: tuple[str, ...]) -> None:
    """Anything else is refused before it is run."""
    for name in {command[0] for command in (*ALLOWED, *REFUSED) if command[0].isalpha()}:
        login.add(name, "#!/bin/sh\necho ran\n")
    answer = subprocess.run(
        [login.folder / "query"], input=request(words[0], words[1:]), text=True, capture_output=True, check=False
    )

    refused = (1, "", "query: this is not a question of the hub\n")
    assert (answer.returncode, answer.stdout, answer.stderr) == ((0, "ran\n", "") if words in ALLOWED else refused)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sacctmgr", "show", "tres"), "sacctmgr failed: the script `query` does not know this question."),
        (("scontrol", "ping"), "scontrol failed: the script `query` does not find the command."),
    ],
    ids=["a question of another version", "no such command there"],
)
def test_what_the_script_does_not_do_says_what_to_mend(login: LoginNode, words: tuple[str, ...], message: str) -> None:
    """As after an update of the hub alone; Slurm has not answered, so what is known is kept."""
    answer = subprocess.run(
        [login.folder / "query"], input=request(words[0], words[1:]), text=True, capture_output=True, check=False
    )
    error = Answer(words[0], answer.returncode, answer.stdout, answer.stderr).error()

    assert isinstance(error, SlurmUnavailable)
    assert (error.message, bool(error.hint)) == (message, True)


@pytest.mark.parametrize("setting", ["exec_prefix", "query_prefix"])
async def test_a_refusal_of_sudo_names_the_setting_whose_sudo_it_was(tmp_path: Path, setting: str) -> None:
    """The hub's questions have another prefix than the commands that run for a user."""
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    sudo.chmod(0o755)
    slurm = Installation(bin_dir="/bin", wrapper_dir="/x", query_prefix=(str(sudo),))
    answer = await slurm.run("squeue", prefix=(str(sudo),) if setting == "exec_prefix" else None)

    with pytest.raises(ConfigError, match=rf"^{setting}: squeue was not run"):
        answer.output()


@pytest.mark.parametrize("text", [b"", b"squeue", b"squeue\0-h", b"a\0" * 70_000], ids=["nothing", "1", "2", "long"])
def test_the_script_refuses_what_is_no_list_of_words(text: bytes) -> None:
    """A request that was cut off is never run."""
    answer = subprocess.run([WRAPPERS / "query"], input=text, capture_output=True, check=False, env=dict(os.environ))

    assert (answer.returncode, answer.stderr) == (
        1,
        b"query: the input is not a list of words that each end with a NUL\n",
    )
