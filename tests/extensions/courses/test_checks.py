"""Mistakes in a configuration that the checks of courses find, with their places and what would be right."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from traitlets.config import Config

from jupyterhub_gpuspawner.check.finding import Options
from jupyterhub_gpuspawner.check.run import contexts_of, findings_of_all
from jupyterhub_gpuspawner.cli.main import main as gpuspawner
from jupyterhub_gpuspawner.extensions.courses.checks import check_courses
from jupyterhub_gpuspawner.site.configuration import load_site, make_absolute
from tests.check.mistakes import Mistake, one
from tests.check.sites import HEAD, RecordedClient, context_in, findings_in
from tests.check.test_clusters import BOTH, TWO, configuration
from tests.check.test_mistakes import assert_found
from tests.check.test_right_configurations import ACCOUNTING, MORNING, PARTICIPANTS, cluster
from tests.slurm.recorded import would_start
from tests.snapshots import recorded_snapshot

COURSE = """name: Course
instructors: [ada]
roster: [alice]
profile: {slug: nope}
sessions: [{date: 2026-11-22, from: 9:00, to: 17:00}]
"""
MISTAKES = {
    "no folder of courses": Mistake(
        one('"partition": "gpu"'),
        "WRONG c.GPUProfilesSpawner.courses_dir: /no/such/folder: the folder cannot be read: No such file or "
        "directory. Create the folder, or correct the setting or the names in it. [course-folder]",
        settings="c.GPUProfilesSpawner.courses_dir = '/no/such/folder'",
    ),
    "a course with a profile that does not exist": Mistake(
        one('"partition": "gpu"'),
        "WRONG course ml: ml.yaml:4: profile.slug: there is no profile nope. `gpuspawner course check ml` tells "
        "more. [course-session]",
        files={"courses/ml.yaml": COURSE},
    ),
    "a profile for a course that is not there": Mistake(
        one('"partition": "gpu"', '"courses": ["ml", "mn"]'),
        "warn  profile g: courses: there is no course mn. Courses are: ml. [course-unknown]",
        files={"courses/ml.yaml": COURSE.replace("nope", "g").replace("2026", "2025")},
    ),
    "fewer seats than people": Mistake(
        one('"partition": "gpu", "gpus": 1, "gpu_type": "v100", "cpus": 1, "memory": "2G"'),
        "warn  profile g: By estimate 1 of 50 start. Not available: g2 (reserved for ml-hpc-0). Request less for each, "
        "or let fewer people start at once. [seats-few]",
        "starts now, 1 of 8 V100 free",
        settings="c.Spawner.start_timeout = 300",
        options=Options(added={"people": 50}),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_found_before_a_user_reads_of_it(tmp_path: Path, mistake: Mistake) -> None:
    """As those that the core's checks find."""
    assert_found(tmp_path, mistake)


def test_a_course_is_checked_where_its_profile_is(tmp_path: Path) -> None:
    """What is found of it is of no cluster: the sentence names one; a silent one concerns its own courses alone."""
    courses = tmp_path / "courses"
    courses.mkdir()
    for name, choice in (("first", "a"), ("next", "b")):
        (courses / f"{name}.yaml").write_text(
            f"{{name: {name}, instructors: root, roster: root, profile: {{slug: one, options: {{where: {choice}}}}}, "
            "zone: UTC, sessions: [{date: 2999-03-04, from: '9:00', to: '12:00', reservation: ml}]}"
        )
    lines = f"{TWO}{BOTH}c.GPUProfilesSpawner.courses_dir = {str(courses)!r}"

    async def sentences() -> list[tuple[str, str, str]]:
        contexts = await contexts_of(load_site(configuration(tmp_path, lines)))
        snapshot = replace(recorded_snapshot("22.05"), reservations=())
        with_snapshots = [replace(context, others={"juniper": snapshot, "cedar": None}) for context in contexts]
        with_snapshots[0] = replace(with_snapshots[0], client=RecordedClient(), snapshot=snapshot)  # type: ignore[arg-type]
        return [
            (finding.cluster, finding.where, finding.text)
            for finding in await findings_of_all(with_snapshots, (check_courses,))
        ]

    assert asyncio.run(sentences()) == [
        ("", "course first", "There is no reservation ml on juniper."),
        ("", "course next", "Slurm on cedar does not respond, so no seats are counted."),
    ]


def test_slurm_is_asked_as_each_profiles_own_people(tmp_path: Path) -> None:
    """Two profiles for two groups: Slurm is asked about each profile as those who may use it."""
    profiles = [
        {
            "display_name": name,
            "slug": name,
            "allow": {"users": users},
            "slurm": {"partition": "batch", "time": "1:00:00"},
        }
        for name, users in (("first", PARTICIPANTS[:2]), ("second", PARTICIPANTS[2:4]))
    ]
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        f"{HEAD}c.JupyterHub.db_url = 'sqlite:///{tmp_path}/hub.sqlite'\n"
        f"c.GPUProfilesSpawner.profiles = {profiles!r}\nc.Spawner.start_timeout = 300\n"
    )
    client = RecordedClient(accounting=ACCOUNTING, trial=would_start(MORNING.timestamp(), "c1", "batch"))
    site = context_in(config, snapshot=cluster(), client=client, options=Options(added={"people": 2}))

    assert [(finding.where, finding.text) for finding in findings_in(site) if finding.code.startswith("seats")] == [
        ("profile first", "2 people could start now, by estimate"),
        ("profile second", "2 people could start now, by estimate"),
    ]
    assert len(client.installation.tried) == 4


def test_one_profile_can_be_checked_for_a_number_of_people() -> None:
    """Without them, or a user, there is nothing to try it with."""
    checked = CliRunner().invoke(gpuspawner, ["check", "--profile", "gpu"])

    assert checked.output.endswith("Error: --profile needs --user, --people or --submit.\n")


def test_a_folder_of_courses_beside_the_configuration_is_found(tmp_path: Path) -> None:
    """From wherever the check is run, as that of profiles."""
    (tmp_path / "courses").mkdir()
    config = Config({"GPUProfilesSpawner": {"courses_dir": "courses"}})
    make_absolute(config, tmp_path / "jupyterhub_config.py", None)

    assert config.GPUProfilesSpawner.courses_dir == str(tmp_path / "courses")
