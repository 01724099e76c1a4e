"""``gpuspawner show`` and ``gpuspawner check``: a hub's configuration, read without a hub."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import Result

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.cli.runner import cli_runner

SITE = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUSlurmSpawner.req_homedir = "/home/{username}"
c.GPUSlurmSpawner.hub_name = "site"
c.GPUProfilesSpawner.profiles = [
    {"display_name": "GPU", "slug": "gpu", "slurm": {"partition": "gpu", "gpus": 1, "time": "8:00:00"},
     "profile_options": {"gpus": {"range": {"min": 1, "max": 4, "sets": "slurm.gpus"}}}},
    {"display_name": "Test", "slug": "test", "kind": "local"},
]
"""
OLD = """
c.SlurmSpawner.batch_script = '''#!/bin/bash
#SBATCH --partition={partition}
#SBATCH --export={keepvars}
{cmd}
'''
"""


MISSING = "there is no partition gup (available: batch, gpu). Name a partition that exists. [partition-missing]"


def run(folder: Path, lines: str, *words: str, environment: dict[str, str] | None = None) -> Result:
    """Run the command with a configuration file."""
    config = folder / "jupyterhub_config.py"
    config.write_text(lines)
    return cli_runner().invoke(main, [*words, "--config", str(config)], env=environment)


def test_show_prints_what_would_be_submitted(tmp_path: Path) -> None:
    """The choice is in the #SBATCH lines; the launcher and the server's command are below them."""
    shown = run(tmp_path, SITE, "show", "gpu", "--user", "ada", "-o", "gpus=3", "--server", "second")

    assert shown.exit_code == 0
    assert re.findall("^#SBATCH (.*)", shown.stdout, re.MULTILINE) == [
        "--job-name=jupyterhub",
        "--comment=jupyterhub-gpuspawner/site/ada/second",
        "--output=/home/ada/jupyterhub-%j.log",
        "--chdir=/home/ada",
        "--export=ALL",
        "--no-requeue",
        "--nodes=1",
        "--partition=gpu",
        "--time=8:00:00",
        "--gres=gpu:3",
    ]
    assert '--plan "$GPUSPAWNER_PLAN" -- jupyterhub-singleuser' in shown.stdout


def test_show_prints_an_admins_own_template_filled_in(tmp_path: Path) -> None:
    """The script contains the names of the server's variables, but not their values."""
    shown = run(tmp_path, SITE + OLD, "show", "gpu", "--user", "ada")

    assert shown.exit_code == 0
    assert "#SBATCH --partition=gpu\n" in shown.stdout
    assert "JUPYTERHUB_API_TOKEN" in shown.stdout
    assert "JUPYTERHUB_API_TOKEN=" not in shown.stdout


FAULTS = {
    "an unknown profile": (("show", "nope", "--user", "ada"), "There is no profile 'nope'. You can choose: GPU, Test."),
    "a value out of bounds": (
        ("show", "gpu", "--user", "ada", "-o", "gpus=9"),
        "gpus: '9' is not allowed: it must be a number from 1 to 4.",
    ),
    "not a Slurm job": (
        ("show", "test", "--user", "ada"),
        "'test' is not a Slurm job and has no batch script.",
    ),
}


@pytest.mark.parametrize(("words", "sentence"), FAULTS.values(), ids=FAULTS.keys())
def test_what_cannot_be_shown_is_said_in_one_sentence(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    """Exit code 1, nothing on standard output."""
    shown = run(tmp_path, SITE, *words)

    assert (shown.exit_code, shown.stdout) == (1, "")
    assert sentence in shown.stderr


def test_a_configuration_that_does_not_load_is_told_with_its_fault(tmp_path: Path) -> None:
    """The message contains the file and the exception's text."""
    shown = run(tmp_path, "c.Spawner.cmd = undefined_name", "check")

    assert shown.exit_code == 1
    assert "jupyterhub_config.py: NameError: name 'undefined_name' is not defined" in shown.stderr


def test_check_tells_of_profiles_even_where_slurm_does_not_answer(tmp_path: Path) -> None:
    """A wrong profile file is reported with its line, with the exit code of a configuration error."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "x.yaml").write_text("display_name: X\nslurm: {memory: lots}\n")
    lines = f"{SITE}\nc.GPUProfilesSpawner.profiles_dir = {str(tmp_path / 'profiles')!r}"
    checked = run(tmp_path, f"{lines}\nc.GPUSlurmSpawner.slurm_bin_dir = '/nowhere'", "check")

    assert checked.exit_code == 1
    assert "ok    profile gpu: GPU (slurm)" in checked.stdout
    assert re.search(r"WRONG x\.yaml:2: slurm\.memory: ", checked.stdout)
    assert "WRONG Slurm: " in checked.stdout


def test_check_tells_of_each_file_that_may_not_be_read_or_say_what_it_says(tmp_path: Path) -> None:
    """The message has name, line and field, and the setting that would allow it; no link target is revealed."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    (tmp_path / "secret").write_text("the-secret-of-the-hub\n")
    (folder / "a.yaml").symlink_to(tmp_path / "secret")
    (folder / "b.yaml").write_text("display_name: B\nenvironment: {setup: id}\n")
    (folder / "c.yaml").write_text("[" * 300_000)
    lines = f"{SITE}\nc.GPUProfilesSpawner.profiles_dir = {str(folder)!r}"
    checked = run(tmp_path, f"{lines}\nc.GPUSlurmSpawner.slurm_bin_dir = '/nowhere'", "check")

    assert checked.exit_code == 1
    assert [line for line in checked.stdout.splitlines() if "yaml" in line] == [
        "WRONG a.yaml: the file is a symbolic link, which is not followed: use a copy of the file [profile-file]",
        "WRONG b.yaml:2: environment.setup: this field is not allowed in a profile file. "
        '"setup" in c.GPUProfilesSpawner.profiles_dir_allows would allow it. [profile-file]',
        "WRONG c.yaml:1: tables and lists are nested more than 50 deep [profile-file]",
    ]
    assert "the-secret-of-the-hub" not in checked.output


def test_a_silent_slurm_alone_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    """Exit code 3: the configuration is correct."""
    checked = run(tmp_path, f"{SITE}\nc.GPUSlurmSpawner.slurm_bin_dir = '/nowhere'", "check")

    assert checked.exit_code == 3


@pytest.mark.slurm
def test_check_asks_slurm_for_the_partitions(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Existing partitions are listed, and a profile with a missing partition is reported."""
    lines = SITE.replace('"partition": "gpu"', '"partition": "gup"')
    bin_dir = f"\nc.GPUSlurmSpawner.slurm_bin_dir = {slurm_cluster.bin_dir!r}"
    good = run(tmp_path, SITE + bin_dir, "check", environment=slurm_cluster.environment)
    bad = run(tmp_path, lines + bin_dir, "check", environment=slurm_cluster.environment)

    assert good.exit_code == 0
    assert re.search(r"ok    Slurm: .*5 nodes, partitions batch, gpu", good.stdout)
    assert bad.exit_code == 1
    assert f"WRONG profile gpu: slurm.partition: {MISSING}" in bad.stdout.splitlines()


ANYWHERE = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles = [{"display_name": "Any", "slurm": {"partition": None, "time": "8:00:00"}}]
"""
ALONE = "c.JupyterHub.spawner_class = 'gpu-slurm'"
PARTITIONS = {
    "a profile that says none": (SITE.replace('"partition": "gpu", ', ""), 1, "c.SlurmSpawner.req_partition"),
    "a profile that takes it away": (ANYWHERE, 0, ""),
    "a hub without profiles": (ALONE, 1, "c.SlurmSpawner.req_partition"),
}


@pytest.mark.slurm
@pytest.mark.parametrize(("lines", "code", "subject"), PARTITIONS.values(), ids=PARTITIONS.keys())
def test_the_sites_partition_is_looked_for_where_a_job_would_go_there(
    tmp_path: Path, slurm_cluster: PrivateSlurm, lines: str, code: int, subject: str
) -> None:
    """The partition that a job of the profile would get, wherever it is set."""
    bin_dir = f"\nc.GPUSlurmSpawner.slurm_bin_dir = {slurm_cluster.bin_dir!r}\nc.SlurmSpawner.req_partition = 'gup'\n"
    checked = run(tmp_path, lines + bin_dir, "check", environment=slurm_cluster.environment)
    wrong = [line for line in checked.stdout.splitlines() if line.startswith("WRONG")]

    assert (checked.exit_code, wrong) == (
        code,
        [f"WRONG {subject}: {MISSING}"] if code else [],
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("json", "'json' is not a spawner of this package."),
        ("json.dumps", "'json.dumps' is not a spawner of this package."),
        ("", "'' cannot be imported: ValueError: Empty module name"),
        (["gpu-profiles"], "['gpu-profiles'] is not a spawner of this package."),
        ("nothing.Of", "No module named 'nothing'"),
    ],
)
def test_a_spawner_class_that_is_none_is_a_finding(value: object, text: str, tmp_path: Path) -> None:
    """JupyterHub takes a class or its name; anything else is told at the setting."""
    done = run(tmp_path, f"c.JupyterHub.spawner_class = {value!r}", "check", "--json")
    finding = json.loads(done.stdout)["findings"][0]

    assert (done.exit_code, finding["code"], finding["where"], finding["text"]) == (
        1,
        "configuration",
        "c.JupyterHub.spawner_class",
        text,
    )


COURSE = """
name: Deep learning
instructors: carl
roster: [ada]
profile: {slug: gpu, options: {gpus: 2}}
zone: UTC
sessions: [{date: 2999-03-04, from: 9:00, to: 12:00, reservation: ml-%u}]
start_ahead: 10min
"""


@pytest.mark.parametrize(("user", "notes"), [("ada", ""), ("bob", "bob is not on the roster of course deep")])
def test_show_prints_the_script_of_a_course_as_of_its_session(user: str, notes: str, tmp_path: Path) -> None:
    """With the course's options and the session's reservation, and a time limit that ends with the session."""
    courses = tmp_path / "courses"
    courses.mkdir()
    (courses / "deep.yaml").write_text(COURSE)
    lines = f"{SITE}\nc.GPUProfilesSpawner.courses_dir = {str(courses)!r}\n"

    shown = run(tmp_path, lines, "show", "course-deep", "--user", user)

    assert (shown.exit_code, re.findall("^#SBATCH --(time|gres|reservation)=(.*)", shown.stdout, re.MULTILINE)) == (
        0,
        [("reservation", "ml-1"), ("time", "3:09:00"), ("gres", "gpu:2")],
    )
    assert shown.stderr.splitlines() == [
        "note: This is the script at 2999-03-04 08:50 UTC, for the session 2999-03-04.",
        *([f"note: {notes}, as far as is known here."] if notes else []),
    ]


def test_show_takes_no_option_for_a_course_and_names_the_courses(tmp_path: Path) -> None:
    """A participant chooses nothing; a course that is not there is told with those that are."""
    courses = tmp_path / "courses"
    courses.mkdir()
    (courses / "deep.yaml").write_text(COURSE)
    lines = f"{SITE}\nc.GPUProfilesSpawner.courses_dir = {str(courses)!r}\n"

    assert [
        run(tmp_path, lines, "show", slug, "--user", "ada", *more).stderr
        for slug, more in (("course-deep", ("-o", "gpus=4")), ("course-deeper", ()))
    ] == [
        "gpuspawner: Deep learning has no option 'gpus'. It has no options.\n",
        "gpuspawner: there is no course 'deeper'. Courses are: deep.\n",
    ]
