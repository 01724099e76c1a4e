"""The batch script, whole: what is submitted, and that nothing can slip a line into it."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.batch.launcher import zipapp
from jupyterhub_gpuspawner.batch.script import render
from jupyterhub_gpuspawner.batch.shell import own_log
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.profiles.files import EVERYTHING
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.slurm.job import tag
from jupyterhub_gpuspawner.slurm.sbatch_options import options_of
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, recover_plan
from tests.standins.profile_files import read_profiles

HERE = Path(__file__).parents[1]
SCRIPTS = HERE / "data" / "scripts"
TAG = tag("hub", "ada", "")
LAUNCHER = b"the launcher's zipapp"


def _request(document: dict[str, Any], **options: str | int) -> JobRequest:
    profiles = parse_profiles([{"display_name": "P", **document}])
    return resolve(profiles, options, username="ada", groups=(), server_name="", now=datetime(2026, 3, 3, 10))


def _render(request: JobRequest, **changed: Any) -> str:
    plan = LaunchPlan(gpus=request.resources.gpus, policy=request.placement.policy or "best-effort")
    settings: dict[str, Any] = {
        "launcher": LAUNCHER,
        "plan": plan,
        "command": ServerCommand(("jupyterhub-singleuser",)),
        "tag": TAG,
        "log_path": "/home/ada/jupyterhub-%j.log",
        "job_name": "jupyterhub",
        "chdir": "/home/ada",
    }
    return render(request, **{**settings, **changed})


def _directives(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]


def _course() -> str:
    (course,) = read_profiles(HERE.parent / "config" / "profiles" / "course.yaml", EVERYTHING)
    request = resolve((course,), {}, username="ada", groups=("course",), server_name="", now=datetime(2026, 3, 3, 10))
    return _render(request)


def _everything() -> str:
    request = _request(
        {
            "slurm": {
                "partition": "gpu",
                "nodes": 2,
                "gpus": 4,
                "gpu_type": "a100",
                "cpus": 16,
                "memory": 0,
                "time": "UNLIMITED",
                "account": "acct",
                "qos": "high",
                "reservation": "day-%u",
                "constraint": "[r1|r2]&ib",
                "exclusive": True,
                "extra": ["--mail-type=END", "--licenses=ansys:2"],
            },
            "environment": {
                "login_shell": False,
                "module_use": "/sw/my modules",
                "modules": ["CUDA/12.4"],
                "conda": "~/envs/torch",
                "venv": "/sw/venv",
                "variables": {"GREETING": "it's $HOME `id`"},
                "setup": "ulimit -c 0\nsource /sw/env.sh",
            },
            "placement": {"policy": "restricted"},
        }
    )
    return _render(
        request,
        command=ServerCommand(("jupyter", "lab", "--ServerApp.x=a b")),
        tag=f"{TAG}#1a2b",
        log_path="/home/a da/%j.log",
        chdir="/home/a da",
        before_server=(": # lines of an extension",),
        prologue="echo before\n",
        epilogue="echo after\n",
    )


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--mail-ty=END -p gpu", [("mail-type", "END"), ("partition", "gpu")]),
        ("--no-req --exclusive --mem 4G", [("no-requeue", ""), ("exclusive", ""), ("mem", "4G")]),
        ("--propagate NONE --propagate=NONE", [("propagate", ""), ("propagate", "NONE")]),
        ("--mem-per=4G", [("mem-per", "4G")]),
    ],
    ids=[
        "an abbreviation and a letter",
        "options without a value",
        "a value that only = gives",
        "the beginning of two options",
    ],
)
def test_a_line_of_options_is_read_as_getopt_reads_it(line: str, options: list[tuple[str, str]]) -> None:
    """sbatch takes the beginning of a long option for the option where only one begins so."""
    assert list(options_of(line)) == options


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("smallest.sh", _render(_request({}))),
        (
            "gpu.sh",
            _render(_request({"slurm": {"partition": "gpu", "gpus": 1, "cpus": 4, "memory": "16G", "time": 90}})),
        ),
        ("course.sh", _course()),
        ("everything.sh", _everything()),
    ],
)
def test_a_script_is_what_a_person_would_have_written(name: str, script: str) -> None:
    """Compared whole; bash reads it."""
    assert script == (SCRIPTS / name).read_text(encoding="utf-8")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("slurm", "gres"),
    [
        ({"gpus": 2}, "--gres=gpu:2"),
        ({"gpus": 2, "gpu_type": "k80"}, "--gres=gpu:k80:2"),
        ({"gpu_type": "1g.10gb"}, "--gres=gpu:1g.10gb:1"),
        ({"shards": 3}, "--gres=shard:3"),
        ({"shards": 3, "gpu_type": "t4"}, "--gres=shard:t4:3"),
        ({"gpus": 0, "gpu_type": "k80"}, None),
        ({}, None),
    ],
)
def test_gpus_are_asked_for_by_type_and_count(slurm: dict[str, object], gres: str | None) -> None:
    """Shards too; no GPU is no gres at all."""
    gres_options = [line for line in _directives(_render(_request({"slurm": slurm}))) if line.startswith("--gres")]
    assert gres_options == ([gres] if gres else [])


@pytest.mark.parametrize(
    ("slurm", "options"),
    [
        ({"gpus": 2}, ["--gpus=2"]),
        ({"gpu_type": "k80"}, ["--gpus=k80:1"]),
        ({"gpus": 2, "extra": ["--gres=nvme:1"]}, ["--gpus=2", "--gres=nvme:1"]),
        ({"gpus": 2, "nodes": 2}, ["--gres=gpu:2"]),
        ({"shards": 3}, ["--gres=shard:3"]),
        ({"gpus": 0}, []),
    ],
)
def test_gpus_may_be_asked_for_the_job_as_a_whole(slurm: dict[str, object], options: list[str]) -> None:
    """On one node that is the same; on several Slurm might distribute the sum unevenly, and shards have no option."""
    script = _render(_request({"slurm": slurm}), gpus_option="gpus")
    assert [line for line in _directives(script) if line.startswith(("--gpus", "--gres"))] == options


UNSET = "unset SLURM_NTASKS SLURM_NPROCS"
"""Lightning and others take the number of the job's tasks for that of processes that srun has started."""


@pytest.mark.parametrize(
    ("policy", "gpus", "binding"),
    [("best-effort", 1, False), ("restricted", 1, True), ("restricted", 0, False)],
)
def test_a_policy_that_only_slurm_can_keep_is_asked_of_slurm(policy: str, gpus: int, binding: bool) -> None:
    """By binding GPUs to their cores, where there are GPUs, for one task: else 24.11 gives it the whole socket."""
    script = _render(_request({"slurm": {"gpus": gpus}, "placement": {"policy": policy}}))
    added = {"--ntasks=1", "--gres-flags=enforce-binding"}
    assert added & {*_directives(script)} == (added if binding else set())
    assert (UNSET in script.splitlines()) is binding


@pytest.mark.parametrize("line", ["--ntasks=4", "-n 4", "--ntasks-per-node=4", "--tasks-per-node=4 --exclude=g2"])
def test_a_profile_whose_own_options_count_tasks_has_as_many_with_every_policy(line: str) -> None:
    """One task beside them would leave a job of four tasks a quarter of its cores, where the count is of a node."""
    slurm = {"gpus": 1, "cpus": 2, "extra": [line]}
    script = _render(_request({"slurm": slurm, "placement": {"policy": "restricted"}}))
    assert [option for option in _directives(script) if "tasks=" in option or option == line] == [line]
    assert UNSET not in script.splitlines()


@pytest.mark.parametrize(
    ("document", "nv"),
    [
        ({"slurm": {"gpus": 1}, "environment": {"container": "/a.sif"}}, True),
        ({"environment": {"container": "/a.sif"}}, False),
        ({"slurm": {"gpus": 1}, "environment": {"container": {"image": "/a.sif", "nv": False}}}, False),
    ],
)
def test_a_container_gets_the_driver_where_there_is_a_gpu(document: dict[str, Any], nv: bool) -> None:
    """Unless the profile says otherwise."""
    words = f"-- apptainer exec {'--nv ' if nv else ''}/a.sif jupyterhub-singleuser\n"
    assert words in _render(_request(document))


def test_what_is_outside_of_the_container_shares_folders_with_it() -> None:
    """The image needs the server alone; a Python for the launcher may lie beside the named program."""
    command = ServerCommand(("serve", "--all"), outside=("gate", "--"), shared=("/run/a b",), beside="/opt/bin/gate")
    script = _render(_request({"environment": {"container": "/a.sif"}}), command=command)

    assert "-- gate -- apptainer exec --bind '/run/a b' /a.sif serve --all\n" in script
    assert "command -v -- /opt/bin/gate" in script


@pytest.mark.parametrize("field", ["tag", "log_path", "job_name", "chdir"])
@pytest.mark.parametrize("value", ["a\n#SBATCH --uid=0", "a\rb", 'a "b" c', "a\\ b"])
def test_a_value_that_could_end_its_line_is_no_script(field: str, value: str) -> None:
    """The second fence: control characters, and what sbatch reads as quotes."""
    with pytest.raises(ValueError, match=r"is not one printable line|contains a quote or a backslash"):
        _render(_request({}), **{field: value})


def test_a_word_of_the_command_is_one_printable_line() -> None:
    """Quotes and blanks are the shell's and are quoted; a line break is refused."""
    assert "-- jupyter 'a b;$(id)'" in _render(_request({}), command=ServerCommand(("jupyter", "a b;$(id)")))
    with pytest.raises(ValueError, match="is not printable"):
        _render(_request({}), command=ServerCommand(("jupyter", "a\nb")))


LOGS = ".local/share/gpuspawner/logs"


class TestOwnLog:
    """The lines that move a job's log, run by bash in a home; ``7`` is the job."""

    @staticmethod
    def _run(home: Path) -> None:
        lines = own_log(f"{home}/jupyterhub-%j.log", f"{home}/{LOGS}")
        with (home / "jupyterhub-7.log").open("w") as log:
            words = ["/bin/bash", "-c", f"echo before\n{lines}\necho after"]
            subprocess.run(words, env={"PATH": "", "SLURM_JOB_ID": "7"}, stdout=log, check=True, timeout=60)

    def test_what_follows_is_written_to_the_log_in_its_folder(self, tmp_path: Path) -> None:
        """Nothing is left in a home whose path has a blank."""
        home = tmp_path / "a home"
        home.mkdir()
        self._run(home)

        assert {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()} == {
            f"{LOGS}/jupyterhub-7.log": "before\nafter\n"
        }

    def test_the_last_twenty_logs_are_kept(self, tmp_path: Path) -> None:
        """By their age, and other files as well."""
        folder = tmp_path / LOGS
        folder.mkdir(parents=True)
        names = ["notes.txt", "jupyterhub-7.log.gz", *(f"jupyterhub-{900 - at}.log" for at in range(22))]
        for at, name in enumerate(names):
            (folder / name).touch()
            os.utime(folder / name, (at, at))
        self._run(tmp_path)

        assert {path.name for path in folder.iterdir()} == {*names[:2], *names[5:], "jupyterhub-7.log"}

    def test_a_log_stays_where_its_folder_cannot_be_made(self, tmp_path: Path) -> None:
        """The job goes on."""
        (tmp_path / ".local").touch()
        self._run(tmp_path)

        assert (tmp_path / "jupyterhub-7.log").read_text() == "before\nafter\n"


class TestRun:
    """Scripts that are run by bash, without Slurm."""

    @staticmethod
    def _run(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = folder / "job.sh"
        path.write_text(script, encoding="utf-8")
        return subprocess.run(
            ["bash", str(path)],
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "HOME": str(folder), **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def test_the_launcher_gets_plan_and_command_in_a_private_folder_that_goes(self, tmp_path: Path) -> None:
        """Its exit code is the job's, the epilogue runs, the user's umask stays."""
        launcher = zipapp(
            {
                "__main__.py": "import os, stat, sys\n"
                "plan = sys.argv[2]\n"
                "modes = [oct(stat.S_IMODE(os.stat(p).st_mode)) for p in (os.path.dirname(plan), plan, sys.argv[0])]\n"
                "print(sys.argv[1], modes, sys.argv[3:], oct(os.umask(0)), os.environ['SRUN_CPUS_PER_TASK'])\n"
                "print(open(plan).read(), end='')\n"
                "sys.exit(7)\n"
            }
        )
        script = _render(
            _request({"environment": {"variables": {"A": "it's"}, "setup": 'umask 027; echo "$A"'}}),
            launcher=launcher,
            command=ServerCommand(("server", "a b")),
            epilogue="echo after $status",
        )
        done = self._run(tmp_path, script, SLURM_CPUS_PER_TASK="4")
        lines = done.stdout.splitlines()
        assert (done.returncode, lines[0], lines[1], lines[3]) == (
            7,
            "it's",
            "--plan ['0o700', '0o600', '0o600'] ['--', 'server', 'a b'] 0o27 4",
            "after 7",
        )
        assert recover_plan(lines[2]) == (LaunchPlan(), "")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["job.sh"]

    def test_a_module_that_fails_is_named_and_ends_the_job(self, tmp_path: Path) -> None:
        """In the log's last line, before anything is started."""
        (tmp_path / "modules.sh").write_text('module() { [ "$2" != Bad/1 ]; }\n', encoding="utf-8")
        script = _render(_request({"environment": {"modules": ["Good/1", "Bad/1", "Good/2"]}}))
        done = self._run(tmp_path, script, BASH_ENV=str(tmp_path / "modules.sh"))
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "gpuspawner: module Bad/1 cannot be loaded\n")

    def test_a_node_without_modules_is_told(self, tmp_path: Path) -> None:
        """Instead of 'command not found' for each."""
        done = self._run(tmp_path, _render(_request({"environment": {"modules": ["CUDA"]}})))
        assert done.stderr.endswith("gpuspawner: there is no module command on this node\n")

    def test_a_node_without_python_is_told(self, tmp_path: Path) -> None:
        """The log says what to do; nothing is left over."""
        script = (
            _render(_request({})).replace("/usr/bin/python3", "/no/python3").replace("/usr/libexec/platform", "/no/p")
        )
        tools = tmp_path / "bin"
        tools.mkdir()
        for name in ("mktemp", "rm", "cat", "base64", "hostname"):
            (tools / name).symlink_to(f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")
        path = tmp_path / "job.sh"
        path.write_text(script, encoding="utf-8")
        done = subprocess.run(
            ["/bin/bash", str(path)],
            env={"PATH": str(tools), "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 1
        assert re.fullmatch(
            r"gpuspawner: no Python 3.9 or newer on \S+; load a module that has one, or set GPUSPAWNER_PYTHON\n",
            done.stderr,
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "job.sh"]


def test_the_launcher_in_the_script_is_the_launcher() -> None:
    """Byte for byte, in lines short enough to page through."""
    launcher = bytes(range(256)) * 40
    script = _render(_request({}), launcher=launcher)
    block = script.split("gpuspawner_launcher() (")[1].split("'\n")[1].split("\n'")[0]
    assert base64.b64decode(block) == launcher
    assert max(map(len, block.splitlines())) == 120


_RESOURCES = ("partition", "gpu_type", "account", "qos", "reservation", "constraint", "time", "memory", "cpus", "gpus")
_ENVIRONMENT = ("conda", "venv", "container")
hostile = st.text(max_size=30) | st.builds(
    "".join,
    st.lists(
        st.sampled_from(["a", "\n", "\r", " ", "#SBATCH --uid=0", "'", '"', "`id`", "$(id)", "\\", "\x85", "\u2028"])
    ),
)


@given(st.sampled_from(_RESOURCES), hostile)
def test_no_text_of_a_profile_can_add_a_directive(field: str, value: str) -> None:
    """It is rejected, or appears as one value on one line."""
    try:
        request = _request({"slurm": {field: value}})
        script = _render(request)
    except (ConfigError, RequestError):
        return
    plain = _directives(_render(_request({})))
    added = [line for line in _directives(script) if line not in plain]
    assert len(added) <= 1
    assert all(re.fullmatch(r"--[a-z-]+=[!-~]+", line) for line in added)
    assert len(script.split("\n")) == len(_render(_request({})).split("\n")) + len(added)


@given(st.sampled_from(_ENVIRONMENT), hostile)
def test_no_text_of_a_user_can_add_a_line(field: str, value: str) -> None:
    """Even if the admin's pattern allows anything."""
    option = {"unlisted_choice": {"validation_regex": "(?s).*", "sets": f"environment.{field}"}}
    try:
        script = _render(_request({"profile_options": {"o": option}}, o=value))
    except RequestError:
        return
    same = _render(_request({"environment": {field: "plain"}}))
    assert len(script.split("\n")) == len(same.split("\n"))
    assert _directives(script) == _directives(same)
