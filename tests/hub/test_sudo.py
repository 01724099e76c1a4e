"""A hub with its own account, and the sudoers file and scripts that admins copy: they allow what is needed, no more."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests

from jupyterhub_gpuspawner.batch.job import LOG_FOLDER
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import IN_THE_END
from tests.fixtures.site import PYTHON, AccountHub, Site
from tests.hub.visitor import Visitor
from tests.waiting import wait_until, wait_until_equal

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

CONFIG = Path(__file__).parents[2] / "config"
DOCS = CONFIG.parent / "docs"


def test_the_files_an_admin_copies_are_in_order() -> None:
    """visudo accepts the sudoers file, no rule has a wildcard or expression, and all users may run the scripts."""
    checked = subprocess.run(["visudo", "-c", "-f", CONFIG / "sudoers"], capture_output=True, text=True, check=False)
    rules = [line for line in (CONFIG / "sudoers").read_text().splitlines() if line and not line.startswith("#")]
    scripts = {script.name for script in (CONFIG / "wrappers").iterdir() if script.stat().st_mode & 0o111 == 0o111}

    assert checked.returncode == 0, checked.stderr
    assert [rule for rule in rules if re.search(r"[*?^$\[]", rule)] == []
    assert scripts == {"submit", "trial", "cancel", "log", "extend", "query"}
    guide = (DOCS / "howto" / "sudo.md").read_text()
    assert [script for script in scripts if f"`{script}`" not in guide] == []


# --- what works -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub(start_account_hub: AccountHub, public_command: str) -> HubProcess:
    """A hub that runs under its own account and looks at its jobs each second."""
    rest = f"slurm: {{partition: batch, cpus: 1, memory: 100M, time: 0:10:00}}, command: {public_command}"
    return start_account_hub(
        lines=f"""
{IN_THE_END}
c.Spawner.poll_interval = 1
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
watcher.REST_INTERVAL = 1.0
from jupyterhub_gpuspawner.hub.spawners import slurm
slurm.VISIBILITY_SECONDS = 0.0  # for how long it is taken as known that Slurm shows the jobs
""",
        profiles=f"""
- {{display_name: One, slug: one, environment: {{setup: "export ITS_UMASK=$(umask)"}}, {rest}}}
- {{display_name: Fails, slug: fails, environment: {{setup: "echo the disk is full >&2; exit 3"}}, {rest}}}
""",
    )


def test_a_server_starts_as_the_person_and_stops(hub: HubProcess, site: Site) -> None:
    """Server and log are the person's, the environment is complete, and the hub itself runs as its own account.

    The hub's umask is that of its service, 0077, and the server's is the usual one.
    """
    assert hub.process is not None

    hub.spawn(site.person, {"profile": "one"})
    variables = requests.get(f"{hub.url}/user/{site.person}/environ", timeout=10).json()
    process = requests.get(f"{hub.url}/user/{site.person}/process", timeout=10).json()
    account = pwd.getpwnam(site.person)
    log = Path(account.pw_dir) / LOG_FOLDER / f"jupyterhub-{variables['SLURM_JOB_ID']}.log"

    assert psutil.Process(hub.process.pid).username() == site.account
    assert process == {"uid": account.pw_uid, "gid": account.pw_gid, "folder": account.pw_dir}
    assert {name: variables[name] for name in ("HOME", "SHELL", "USER", "LOGNAME", "JUPYTERHUB_USER")} == {
        "HOME": account.pw_dir,
        "SHELL": account.pw_shell,
        **dict.fromkeys(("USER", "LOGNAME", "JUPYTERHUB_USER"), site.person),
    }
    assert log.stat().st_uid == account.pw_uid
    assert len(variables["JUPYTERHUB_API_TOKEN"]) >= 32
    assert variables["ITS_UMASK"] == "0022"
    assert sorted(name for name in variables if name.startswith("SUDO")) == []
    assert variables["JUPYTERHUB_API_TOKEN"] not in hub.log.read_text()

    hub.end(site.person)
    _until_gone(site.slurm, variables["SLURM_JOB_ID"])


def _until_gone(slurm: PrivateSlurm, job: str) -> None:
    wait_until(lambda: job not in slurm.run("squeue", "-h", "-o", "%i").split(), f"job {job} goes on", seconds=60)


def test_a_failed_start_shows_the_persons_log(hub: HubProcess, site: Site) -> None:
    """The page shows the last lines of the log, which the hub's account could not read."""
    hub.api("POST", f"/users/{site.person}")
    answer = hub.api("POST", f"/users/{site.person}/server", {"profile": "fails"})

    assert answer.status_code == 500
    assert 'It wrote: "the disk is full"' in answer.json()["message"]
    assert "Log file: " in answer.json()["message"]

    shown = Visitor(hub, site.person).look(f"/hub/gpuspawner/log/{site.person}")

    assert (shown.status, "the disk is full" in shown.text) == (200, True)

    log = re.search(r"\S*jupyterhub-\d+\.log", answer.json()["message"])

    assert log is not None
    assert site.run("cat", log[0]).returncode != 0 or Path(log[0]).stat().st_mode & 0o004


# --- what is refused --------------------------------------------------------------------------------


def test_sudo_lists_four_commands_and_no_more(site: Site) -> None:
    """The commands run as the user, without a password, without SETENV and without arguments."""
    listing = site.run("sudo", "-n", "-l").stdout.decode()
    rules = [rule.replace(",", "").split() for rule in re.findall(r"^    (\(.*)$", listing, re.MULTILINE)]
    scripts = [word for name in ("submit", "trial", "cancel", "log") for word in (f"{site.wrappers}/{name}", '""')]

    assert [sorted(rule) for rule in rules] == [
        sorted([f"(%{site.person}", "!#0)", "NOPASSWD:", "NOSETENV:", *scripts])
    ], listing


REFUSED: dict[str, tuple[str, Sequence[str]]] = {
    "another command": ("", ("/usr/bin/id",)),
    "a shell": ("", ("/bin/sh",)),
    "sbatch itself": ("", ("SLURM/sbatch", "--parsable")),
    "scancel itself": ("", ("SLURM/scancel", "1")),
    "an argument for submit": ("", ("submit", "--uid=0")),
    "an argument for trial": ("", ("trial", "/etc/passwd")),
    "an argument for cancel": ("", ("cancel", "--user=root")),
    "a job as an argument": ("", ("cancel", "1")),
    "a path for log": ("", ("log", "/etc/passwd")),
    "an empty argument": ("", ("log", "")),
    "root": ("root", ("submit",)),
    "root by its number": ("#0", ("submit",)),
    "somebody outside the group": ("nobody", ("submit",)),
}


@pytest.mark.parametrize(("user", "argv"), REFUSED.values(), ids=REFUSED.keys())
def test_sudo_refuses(site: Site, user: str, argv: Sequence[str]) -> None:
    """sudo asks for a password, which means that the command is not allowed."""
    words = [word.replace("SLURM", site.slurm.bin_dir) for word in argv]
    tried = site.sudo(*words, user=user)

    assert tried.returncode == 1
    assert b"a password is required" in tried.stderr


@pytest.mark.parametrize("user", ["root", "#0", "#00"])
def test_sudo_refuses_root_even_where_it_is_in_the_group(site: Site, user: str) -> None:
    """The scripts would refuse as well, but are not reached."""
    assert "root" in subprocess.run(["id", "-nG", "root"], capture_output=True, text=True, check=True).stdout.split()
    tried = site.with_rules(site.sudoers.read_text().replace(f"%{site.person}", "%root")).sudo("submit", user=user)

    assert tried.returncode == 1
    assert b"a password is required" in tried.stderr


@pytest.mark.parametrize("script", ["submit", "trial", "cancel", "log", "extend"])
def test_no_script_runs_as_root(script: str) -> None:
    """A script refuses root even without sudo, for example when an admin tries it."""
    tried = subprocess.run([PYTHON, "-I", CONFIG / "wrappers" / script], input=b"", capture_output=True, check=False)

    assert (tried.returncode, tried.stderr) == (1, f"{script}: not as root\n".encode())


VARIABLES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "BASH_ENV", "ENV", "PYTHONPATH", "PYTHONSTARTUP", "SLURM_CONF")


def test_no_variable_of_the_hubs_account_has_a_say(site: Site, site_folder: Path, tmp_path: Path) -> None:
    """No variable passes, whether inherited, set on sudo's command line or with -E, and none reaches the job."""
    evil = site_folder / "evil"
    evil.mkdir()
    evil.chmod(0o777)
    (evil / "sitecustomize.py").write_text(f"open({str(evil / 'ran')!r}, 'w')")
    (evil / "run.sh").write_text(f"touch {evil / 'ran'}\n")
    (evil / "slurm.conf").write_text("ClusterName=evil\n")
    values = {name: str(evil) for name in VARIABLES}
    values.update(
        BASH_ENV=f"{evil}/run.sh", ENV=f"{evil}/run.sh", SLURM_CONF=f"{evil}/slurm.conf", HUBS_OWN="of the hub"
    )
    out = Path(pwd.getpwnam(site.person).pw_dir) / "variables"
    script = f"#!/bin/bash\n#SBATCH --output={out}\n#SBATCH --export=ALL\nenv\n"
    environment = "HOME=/\0ITS=own\0"
    text = f"environment {len(environment)}\n{environment}{script}"
    path = {"PATH": "/usr/bin:/bin"}  # sudo itself is found by this path

    submitted = site.sudo("submit", stdin=text, environment={**values, **path})

    assert submitted.returncode == 0, submitted.stderr

    _until_gone(site.slurm, submitted.stdout.decode().strip())
    variables = out.read_text()

    assert "\nITS=own\n" in variables
    assert [name for name, value in values.items() if value in variables] == []

    for name, value in values.items():
        words = ("-u", site.person, f"{name}={value}", str(site.wrappers / "submit"))
        set_there = site.run("sudo", "-n", *words, stdin=text)

        assert set_there.returncode == 1, name
        assert b"not allowed to set the following environment variables" in set_there.stderr, name
    completed = site.run("sudo", "-n", "-E", "-u", site.person, str(site.wrappers / "submit"), stdin=text)

    assert b"not allowed to preserve the environment" in completed.stderr
    assert not (evil / "ran").exists()


UMASKS = {"as it is shipped": ("", "0022\n"), "a site's own": ("0o027", "0027\n")}


@pytest.mark.parametrize(("of_site", "printed"), UMASKS.values(), ids=UMASKS.keys())
def test_the_umask_of_a_job_is_that_of_the_script(site: Site, of_site: str, printed: str) -> None:
    """sudo alone would add that of the hub's service, 0077."""
    script = site.wrappers / "submit"
    shipped_text = script.read_text()
    out = Path(pwd.getpwnam(site.person).pw_dir) / f"umask-{of_site}"
    script.write_text(shipped_text.replace("UMASK = 0o022 ", f"UMASK = {of_site} ") if of_site else shipped_text)
    try:
        submitted = site.sudo("submit", stdin=f"environment 0\n#!/bin/sh\n#SBATCH --output={out}\numask\n")
    finally:
        script.write_text(shipped_text)
    _until_gone(site.slurm, submitted.stdout.decode().strip())

    assert (submitted.stderr, out.read_text()) == (b"", printed)


INPUTS: dict[str, tuple[str, bytes, bytes]] = {
    "cancel: an option": ("cancel", b"--user=root", b"cancel: the input is not a job id"),
    "cancel: two jobs": ("cancel", b"1 2", b"cancel: the input is not a job id"),
    "cancel: a line more": ("cancel", b"1\n2\n", b"cancel: the input is not a job id"),
    "cancel: a step": ("cancel", b"1.0", b"cancel: the input is not a job id"),
    "cancel: an array": ("cancel", b"1_[1-9]", b"cancel: the input is not a job id"),
    "cancel: nothing": ("cancel", b"", b"cancel: the input is not a job id"),
    "cancel: digits of another script": ("cancel", "\uff11".encode(), b"cancel: the input is not a job id"),
    "cancel: no end": ("cancel", b"1" * 100_000, b"cancel: the input is not a job id"),
    "log: a path": ("log", b"/etc/passwd", b"log: the input is not a job id"),
    "log: a path behind a job": ("log", b"1/../../etc/passwd", b"log: the input is not a job id"),
    "log: an option": ("log", b"-d", b"log: the input is not a job id"),
    "log: a line more": ("log", b"1\n/etc/passwd\n", b"log: the input is not a job id"),
    "log: a NUL": ("log", b"1\0", b"log: the input is not a job id"),
    "log: no such job": ("log", b"999999", b"log: this is not a job of the user"),
    "trial: as root": ("trial", b"#!/bin/sh\n#SBATCH --uid=root\n", b"--uid only permitted by root"),
    "submit: no environment": ("submit", b"#!/bin/sh\n", b"submit: the input does not begin with"),
    "submit: too long": ("submit", b"environment 9999999\n", b"submit: the input does not begin with"),
    "submit: a sign": ("submit", b"environment -1\n", b"submit: the input does not begin with"),
    "submit: too short": ("submit", b"environment 10\nA=1\0", b"submit: the input ends too early"),
    "submit: no end": ("submit", b"environment 3\nA=1#!/bin/sh\n", b"submit: the environment does not end with a NUL"),
    "submit: no name": ("submit", b"environment 3\n=1\0#!/bin/sh\n", b"is not an environment"),
    "submit: a function": ("submit", b"environment 13\nA()=() { :;}\0", b"is not an environment"),
    "submit: no script": ("submit", b"environment 0\n", b"Batch script is empty"),
    "submit: as root": ("submit", b"environment 0\n#!/bin/sh\n#SBATCH --uid=root\n", b"--uid only permitted by root"),
}


@pytest.mark.parametrize(("script", "text", "error"), INPUTS.values(), ids=INPUTS.keys())
def test_a_script_refuses_what_is_not_its_input(site: Site, script: str, text: bytes, error: bytes) -> None:
    """The error is one sentence, and nothing is run."""
    tried = site.sudo(script, stdin=text)

    assert tried.returncode != 0
    assert error in tried.stderr
    assert tried.stdout == b""
    assert b"Traceback" not in tried.stderr


LOGS = {
    "a plain log": ("echo the last words", 0, b"the last words\n"),
    "a link": ('rm "$LOG"; ln -s /etc/passwd "$LOG"', 1, b""),
    "a pipe": ('rm "$LOG"; mkfifo "$LOG"', 1, b""),
    "gone": ('rm "$LOG"', 1, b""),
    "a long log": ("yes 123456789012345 2>/dev/null | head -c 100000", 0, b"123456789012345\n" * 256),
}


@pytest.mark.parametrize(("command", "status", "shown"), LOGS.values(), ids=LOGS.keys())
def test_of_a_job_its_logs_end_is_read_and_no_other_file(site: Site, command: str, status: int, shown: bytes) -> None:
    """The script reads, as the user, the end of a regular file at the path that Slurm has; comments cannot forge it."""
    log = Path(pwd.getpwnam(site.person).pw_dir) / f"log-{time.monotonic_ns()}"
    options = ["--parsable", f"--output={log}", "--comment=x\n   StdOut=/etc/passwd\n", "--export=NONE", "--chdir=/"]
    job = subprocess.run(
        ["runuser", "-u", site.person, "--", f"{site.slurm.bin_dir}/sbatch", *options],
        input=f"#!/bin/bash\nLOG={log}\n{command}\n",
        env={**os.environ, **site.slurm.environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    _until_gone(site.slurm, job)
    read = site.sudo("log", stdin=job)

    assert (read.returncode, read.stdout) == (status, shown), read.stderr


def test_anothers_job_is_neither_cancelled_nor_read(site: Site) -> None:
    """Slurm refuses to cancel another user's job, and the script refuses to read its log."""
    script = "#!/bin/sh\n#SBATCH --output=/dev/null\n#SBATCH --chdir=/\nsleep 300\n"
    roots = subprocess.run(
        [f"{site.slurm.bin_dir}/sbatch", "--parsable"],
        input=script,
        env={**os.environ, **site.slurm.environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    try:
        cancelled, read = site.sudo("cancel", stdin=roots), site.sudo("log", stdin=roots)
    finally:
        site.slurm.run("scancel", "--full", "--signal=KILL", roots)

    assert b"Access/permission denied" in cancelled.stderr
    assert (read.returncode, read.stderr) == (1, b"log: this is not a job of the user\n")


# --- gpuspawner check, as the hub's account ---------------------------------------------------------

RULES = {
    "as they are shipped": (
        "",
        "ok    c.GPUSlurmSpawner.exec_prefix: 4 scripts run as PERSON through `sudo -n -u PERSON`.",
    ),
    "without the one for logs": (
        ", JOBLOG",
        "WRONG c.GPUSlurmSpawner.exec_prefix: log was not run: sudo asks for a password (sudo: a password is "
        "required). Allow the hub's account to run Slurm's commands without one "
        "(NOPASSWD in sudoers, for a group with the user in it). "
        "[run-as-user-fails]",
    ),
}


@pytest.mark.parametrize(("without", "line"), RULES.values(), ids=RULES.keys())
def test_check_tries_the_rules_of_sudo(site: Site, site_folder: Path, without: str, line: str) -> None:
    """Each script is run as a user with an input that it refuses, so that a missing rule is found and no job is."""
    config = site_folder / f"check-{len(without)}.py"
    config.write_text(f"""
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles = [{{"display_name": "One", "slurm": {{"partition": "batch"}}}}]
c.GPUSlurmSpawner.exec_prefix = "sudo -n -u {{username}}"
c.GPUSlurmSpawner.wrapper_dir = {str(site.wrappers)!r}
c.GPUSlurmSpawner.slurm_bin_dir = {site.slurm.bin_dir!r}
""")
    rules = re.sub(rf"^(HUB .*){without}$", r"\1", site.sudoers.read_text(), flags=re.MULTILINE)
    checked = site.with_rules(rules).gpuspawner("check", "-f", str(config), "--user", site.person)
    lines = checked.stdout.decode().replace(site.person, "PERSON").splitlines()

    assert [text for text in lines if "exec_prefix" in text] == [line], checked.stderr


def test_check_submits_a_job_beside_the_hub(hub: HubProcess, site: Site) -> None:
    """With the hub's own account, configuration, port and database; the hub and a server of the same user go on."""
    hub.spawn(site.person, {"profile": "one"})
    server = requests.get(f"{hub.url}/user/{site.person}/environ", timeout=10).json()["SLURM_JOB_ID"]
    begins = len(hub.log.read_text())
    assert hub.process is not None
    words = ("check", "-f", str(hub.config), "--user", site.person, "--submit", "--profile", "one", "--json")
    checked = site.gpuspawner(*words, **psutil.Process(hub.process.pid).environ())
    findings = json.loads(checked.stdout)["findings"] if checked.stdout else []
    queue = site.slurm.run("squeue", "-h", "-t", "PD,CF,R", "-o", "%i %T %k").splitlines()

    errors = {finding["code"] for finding in findings if finding["severity"] == "error"}
    assert errors <= {"hub-name-shared"}, checked.stderr  # hubs of other tests have jobs in the same Slurm
    assert {"run-as-user", "trial", "job-placed", "job-ran"} <= {finding["code"] for finding in findings}
    assert [line for line in queue if "#check-" in line] == []
    assert [line.split()[:2] for line in queue if line.startswith(f"{server} ")] == [[server, "RUNNING"]]
    assert requests.get(f"{hub.url}/user/{site.person}/environ", timeout=10).json()["SLURM_JOB_ID"] == server
    faults = [line for line in hub.log.read_text()[begins:].splitlines() if "[W" in line or "[E" in line]
    assert [line for line in faults if "Event loop was unresponsive" not in line] == []  # on a busy machine

    hub.end(site.person)


# --- a Slurm that hides the users' jobs --------------------------------------------------------------


@contextmanager
def hidden_jobs(slurm: PrivateSlurm) -> Iterator[None]:
    """A context in which users see only their own jobs (PrivateData of the running slurmctld)."""

    def private_data(value: str) -> None:
        slurm.conf.write_text(f"{text}PrivateData={value}\n")
        slurm.run("scontrol", "reconfigure")
        wait_until(lambda: re.search(rf"PrivateData += {value}\b", slurm.run("scontrol", "show", "config")))

    text = slurm.conf.read_text()
    try:
        private_data("jobs")
        yield
    finally:
        private_data("none")
        slurm.conf.write_text(text)


def test_a_start_that_could_not_be_watched_is_refused_and_its_page_says_why(hub: HubProcess, site: Site) -> None:
    """The hub could not tell whether the job waits, runs or has ended; nothing is submitted."""
    hub.api("POST", f"/users/{site.person}")
    with hidden_jobs(site.slurm):
        answer = hub.api("POST", f"/users/{site.person}/server", {"profile": "one"})
        queue = site.slurm.run("squeue", "-h", "-t", "PD,CF,R", "-o", "%k")

    assert (answer.status_code, answer.json()["message"].partition(". ")[0]) == (
        500,
        "The hub cannot start this server: it is not set up correctly",
    )
    assert "Slurm does not show the hub the jobs of its users (PrivateData=jobs)." in hub.log.read_text()
    assert f"/{site.person}/" not in queue


@pytest.mark.nightly
def test_a_running_server_is_kept_whatever_slurm_shows(hub: HubProcess, site: Site) -> None:
    """PrivateData is set while servers run: the hub learns nothing of them, also after a restart."""

    def ready() -> bool:
        return bool((hub.server(site.person) or {}).get("ready"))

    hub.spawn(site.person, {"profile": "one"})
    job = requests.get(f"{hub.url}/user/{site.person}/environ", timeout=10).json()["SLURM_JOB_ID"]
    begins = len(hub.log.read_text())
    with hidden_jobs(site.slurm):
        wait_until(lambda: "running servers are kept" in hub.log.read_text()[begins:], hub.log_end)
        ready_before = ready()
        hub.restart()
        wait_until(lambda: hub.log.read_text()[begins:].count("running servers are kept") == 2, hub.log_end)
        ready_after = ready()

    assert (ready_before, ready_after) == (True, True)
    assert site.slurm.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING"

    hub.end(site.person)
    _until_gone(site.slurm, job)


def test_check_says_that_jobs_are_hidden(site: Site, site_folder: Path) -> None:
    """The command warns the hub's own account; root sees all jobs."""
    config = site_folder / "private-check.py"
    config.write_text(
        'c.JupyterHub.spawner_class = "gpu-slurm"\n'
        'c.GPUSlurmSpawner.exec_prefix = "sudo -n -u {username}"\n'
        f"c.GPUSlurmSpawner.slurm_bin_dir = {site.slurm.bin_dir!r}\n"
    )
    program = (str(Path(sys.executable).parent / "gpuspawner"), "check", "--config", str(config))
    with hidden_jobs(site.slurm):
        account = site.run(*program, environment=site.slurm.environment)
        root = subprocess.run(
            program, env={"PATH": "/usr/bin:/bin", **site.slurm.environment}, capture_output=True, check=False
        )

    assert f"PrivateData hides the users' jobs from {site.account}".encode() in account.stdout, account
    assert account.returncode != 0
    assert b"PrivateData" not in root.stdout + root.stderr


# --- a Slurm operator extends servers ----------------------------------------------------------------

OWN_SLURM = """
import sys
from pathlib import Path
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
with PrivateSlurm(DEMO_CLUSTER, Path(sys.argv[1])) as slurm:
    print(slurm.conf, flush=True)
    sys.stdin.read()
"""
HUB = "hub/1"
"""A hub's name that has to be quoted in comments."""
TAG = "jupyterhub-gpuspawner/hub%2F1/ada/"


@dataclass(frozen=True)
class Operated(Site):
    """A site whose hub may also run ``extend`` as SlurmUser, which is the person's account here."""

    conf: str = ""

    def slurms(self, command: str, *options: str, stdin: str = "") -> str:
        """Run a Slurm command as SlurmUser."""
        return subprocess.run(
            ["runuser", "-u", self.person, "--", f"{self.slurm.bin_dir}/{command}", *options],
            input=stdin,
            env={"PATH": os.environ["PATH"], "SLURM_CONF": self.conf},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def limit(self, job: str) -> str:
        """The job's time limit as Slurm prints it."""
        return self.slurms("squeue", "-h", "-j", job, "-o", "%l")


@pytest.fixture(scope="module")
def operated(site: Site, site_folder: Path) -> Iterator[Operated]:
    """The last lines of the rules for sudo without their #, and a Slurm whose SlurmUser is not root."""
    folder = site_folder / "operated"
    folder.mkdir(mode=0o755)
    shutil.chown(folder, site.person)
    account = pwd.getpwnam(site.person)
    become = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups"]
    slurm = subprocess.Popen(
        [*become, sys.executable, "-c", OWN_SLURM, str(folder / "s")],
        cwd="/",
        env={"PATH": "/usr/sbin:/usr/bin:/bin", "PYTHONPATH": str(CONFIG.parent), "HOME": account.pw_dir},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert slurm.stdout is not None
    try:
        conf = slurm.stdout.readline().strip()
        assert conf, "this Slurm did not start"
        script = site.wrappers / "extend"
        text = script.read_text().replace(str(site.slurm.conf), conf)
        script.write_text(text.replace("HUB = socket.gethostname()", f"HUB = {HUB!r}"))
        rules = re.sub("^#(?=Cmnd_Alias|Defaults|HUB )", "", site.sudoers.read_text(), flags=re.MULTILINE)
        extended = site.with_rules(rules.replace("(slurm)", f"({site.person})"))
        yield Operated(site.account, site.person, site.wrappers, extended.sudoers, site.slurm, conf)
    finally:
        slurm.communicate(timeout=60)


JOBS: dict[str, tuple[list[str], str]] = {
    "a server of this hub": ([f"--comment={TAG}#mark-1"], "1:10:00"),
    "a server of another hub": (["--comment=jupyterhub-gpuspawner/hub/ada/"], "10:00"),
    "a server of a hub whose name begins like this one's": (["--comment=jupyterhub-gpuspawner/hub%2F11/ada/"], "10:00"),
    "a tag behind other words": ([f"--comment=x {TAG}"], "10:00"),
    "a tag in a line of its own": ([f"--comment=x\n   Comment={TAG}"], "10:00"),
    "no server": ([], "10:00"),
    "a server that is pending": ([f"--comment={TAG}", "--hold"], "10:00"),
}


@pytest.mark.parametrize(("options", "limit"), JOBS.values(), ids=JOBS.keys())
def test_of_all_jobs_a_running_server_of_this_hub_is_extended(
    operated: Operated, options: list[str], limit: str
) -> None:
    """The hub's account, which Slurm would refuse, raises its limit through sudo; of any other job it does not."""
    more = ["--parsable", "--time=10", "--chdir=/", "--output=/dev/null", "--partition=batch"]
    job = operated.slurms("sbatch", *more, *options, stdin="#!/bin/sh\nsleep 600\n")
    wanted = "PENDING" if "--hold" in options else "RUNNING"
    wait_until_equal(lambda: operated.slurms("squeue", "-h", "-j", job, "-o", "%T"), wanted)
    done = operated.sudo("extend", stdin=f"{job} 60\n")
    new_limit = operated.limit(job)
    operated.slurms("scancel", job)

    assert (done.returncode == 0, new_limit) == (limit != "10:00", limit), done.stderr
    assert done.stdout == b""
    assert done.stderr in (b"", b"extend: this is not a running job of this hub\n")


MINUTES = {
    "nothing": b"",
    "a job alone": b"1",
    "an option": b"--all 1",
    "minutes to take away": b"1 -60",
    "minutes with a sign": b"1 +60",
    "no minutes": b"1 0",
    "a part of a minute": b"1 1.5",
    "a time": b"1 1:00:00",
    "two jobs": b"1,2 60",
    "an array": b"1_1 60",
    "a line more": b"1 60\n2 60\n",
    "two blanks": b"1  60",
    "a tab": b"1\t60",
    "another field": b"1 60 Priority=1",
    "a NUL": b"1 60\0",
    "digits of another script": "1 \uff16\uff10".encode(),
    "no end": b"1 6" + b"0" * 100_000,
}


@pytest.mark.parametrize("text", MINUTES.values(), ids=MINUTES.keys())
def test_extend_refuses_what_is_no_job_and_minutes(operated: Operated, text: bytes) -> None:
    """The error is one sentence, and Slurm is not asked."""
    tried = operated.sudo("extend", stdin=text)

    assert (tried.returncode, tried.stdout) == (1, b"")
    assert tried.stderr == b"extend: the input is not a job id and a number of minutes\n"


def test_extend_has_a_limit_of_its_own(operated: Operated) -> None:
    """A day at once, whatever the hub asks for; and a job that Slurm does not know is reported as such."""
    assert operated.sudo("extend", stdin="1 1441").stderr == b"extend: more than 1440 minutes\n"
    assert b"Invalid job id specified" in operated.sudo("extend", stdin="4294967 60").stderr


def test_sudo_allows_extend_as_the_operator_alone(operated: Operated) -> None:
    """One rule more, for one account; without arguments, without variables and never as root."""
    listing = operated.run("sudo", "-n", "-l").stdout.decode()

    rules = [rule.split() for rule in re.findall(r"^    (\(.*extend.*)$", listing, re.MULTILINE)]

    assert [sorted(rule) for rule in rules] == [
        sorted([f"({operated.person})", "NOPASSWD:", "NOSETENV:", f"{operated.wrappers}/extend", '""'])
    ], listing
    tried = {user: operated.sudo("extend", user=user, stdin="1 60") for user in ("root", "#0", "nobody")}
    tried["an argument"] = operated.sudo("extend", "1", stdin="1 60")
    assert {
        name: (attempt.returncode, b"a password is required" in attempt.stderr) for name, attempt in tried.items()
    } == (dict.fromkeys(tried, (1, True)))


# --- a user who stops processes that run as them ----------------------------------------------------

STOPPED = """
import asyncio, json, logging, sys, time
from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.slurm.commands import Installation

async def main(wrappers, person, folder):
    logging.basicConfig(stream=sys.stderr)
    slurm = Installation(wrapper_dir=wrappers, bin_dir="/bin", timeout=1.0, limit=4)
    async def stopped():
        try:
            await slurm.run("log", wrapper="log", prefix=("sudo", "-n", "-u", person), stdin="1")
        except SlurmUnavailable as error:
            return error.message
    first = asyncio.gather(*(stopped() for _ in range(6)))
    await asyncio.sleep(0.3)
    other = await slurm.run("echo", "served")
    said = [*await first, *[await stopped() for _ in range(5)]]
    open(f"{folder}/said.json", "w").write(json.dumps([said, other.stdout]))
    input()
    for _ in range(100):
        await asyncio.sleep(0.1)
        after = await stopped()
        if after is None:
            break
    open(f"{folder}/after.json", "w").write(json.dumps(after))

asyncio.run(main(*sys.argv[1:]))
"""


STOPS = {
    "once": ("kill -STOP $$", 0, "log did not respond within 1 s."),
    "again and again": (
        "trap '' TERM HUP; while [ ! -e GOES_ON ]; do kill -STOP $$; done",
        4,
        "are hanging and cannot be killed",
    ),
}


@pytest.mark.parametrize(("line", "most", "error"), STOPS.values(), ids=STOPS.keys())
def test_a_person_who_stops_what_runs_as_them_takes_no_turn_of_others_and_leaves_few_processes(
    site: Site, public_folder: Path, line: str, most: int, error: str
) -> None:
    """Processes that the hub may not kill are counted and logged, and no more are started until they have ended."""
    folder = public_folder / f"stopped-{time.monotonic_ns()}"
    folder.mkdir(mode=0o755)
    shutil.chown(folder, site.account)
    wrapper, goes_on = site.wrappers / "log", folder / "goes-on"
    text = wrapper.read_text()
    wrapper.write_text(f"#!/bin/sh\n{line}\n".replace("GOES_ON", str(goes_on)))
    hub = subprocess.Popen(
        [*site.entry, sys.executable, "-c", STOPPED, str(site.wrappers), site.person, str(folder)],
        env={"PATH": "/usr/bin:/bin", "SUDOERS": str(site.sudoers), "PYTHONPATH": str(CONFIG.parent)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (folder / "said.json").exists() and hub.poll() is None:
            time.sleep(0.1)
        left = running(wrapper)
        errors, other = json.loads((folder / "said.json").read_text())
        wrapper.write_text("#!/bin/sh\nexit 0\n")
        goes_on.touch()
        for process in left:
            process.send_signal(signal.SIGCONT)  # as the user does
        _, log = hub.communicate("go on\n", timeout=60)
        after = json.loads((folder / "after.json").read_text())
    finally:
        hub.kill()
        wrapper.write_text(text)
        for process in running(wrapper):
            process.kill()

    assert other == "served\n"
    assert (len(errors), [process for process in errors[-3:] if error not in process]) == (11, [])
    assert len(left) <= most
    assert ("log cannot be killed: process " in log) is bool(left)
    assert after is None


def running(wrapper: Path) -> list[psutil.Process]:
    """The processes of a wrapper script, including sudo's."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if str(wrapper) in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
