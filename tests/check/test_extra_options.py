"""Options of sbatch in `extra` that contradict what the profile's own fields, or the hub's settings, say."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check import profiles
from jupyterhub_gpuspawner.check.run import findings, line
from tests.check.sites import context

SHOWN = "which the form shows and by which it judges whether a job can start."
HUB = "c.GPUSlurmSpawner"


def finding_lines(folder: Path, slurm: str, more: str = "", settings: str = "") -> list[str]:
    """The lines of what the check finds in one profile."""
    profile = f'{{"display_name": "G", "slurm": {{"partition": "gpu", {slurm}}}, {more}}}'
    where = context(folder, f"{settings}\nc.GPUProfilesSpawner.profiles = [{profile}]")
    return [line(finding) for finding in asyncio.run(findings(where, [profiles.check_extra]))]


FIELDS = {
    "--partition=hopper": ("--partition=hopper", "partition"),
    "-p hopper": ("--partition=hopper", "partition"),
    "-phopper": ("--partition=hopper", "partition"),
    "--time 1:00:00": ("--time=1:00:00", "time"),
    "-t 60": ("--time=60", "time"),
    "--gres=gpu:2": ("--gres=gpu:2", "gpus"),
    "--gpus=2": ("--gpus=2", "gpus"),
    "-G 2": ("--gpus=2", "gpus"),
    "--gpus-per-node=2": ("--gpus-per-node=2", "gpus"),
    "--mem=8G": ("--mem=8G", "memory"),
    "--cpus-per-task=4": ("--cpus-per-task=4", "cpus"),
    "-c4": ("--cpus-per-task=4", "cpus"),
    "--nodes=2": ("--nodes=2", "nodes"),
    "-N 2": ("--nodes=2", "nodes"),
    "--nodes=1-4": ("--nodes=1-4", "nodes"),
    "--account=a": ("--account=a", "account"),
    "--qos=a": ("--qos=a", "qos"),
    "--reservation=a": ("--reservation=a", "reservation"),
    "-C nvlink": ("--constraint=nvlink", "constraint"),
    "--nice=50": ("--nice=50", "nice"),
    "--exclusive": ("--exclusive", "exclusive"),
    "--part=hopper": ("--partition=hopper", "partition"),
    "--cpus-per-t 4": ("--cpus-per-task=4", "cpus"),
    "--exclusiv": ("--exclusive", "exclusive"),
    "--mail-type=END --mem=8G": ("--mem=8G", "memory"),
}
OF_FIELDS = {
    extra: f"warn  {{}}{option} overrides slurm.{field}, {SHOWN} Set slurm.{field} instead. [extra-field]"
    for extra, (option, field) in FIELDS.items()
}
OF_THE_HUB = {
    extra: f"warn  {{}}{option} overrides {HUB}.{name}. Remove it, and set {HUB}.{name} instead. [extra-setting]"
    for extra, option, name in (
        ("--output=/tmp/x", "--output=/tmp/x", "log_dir"),
        ("-o /tmp/x", "--output=/tmp/x", "log_dir"),
        ("--job-name=x", "--job-name=x", "job_name"),
        ("-J x", "--job-name=x", "job_name"),
    )
}
OF_VARIABLES = {
    extra: f"WRONG {{}}{extra} keeps the hub's variables from the job, so the server cannot sign in. Remove it. "
    "[extra-export]"
    for extra in ("--export=NONE", "--export=HOME,PATH")
}


@pytest.mark.parametrize(("extra", "message"), [*OF_FIELDS.items(), *OF_THE_HUB.items(), *OF_VARIABLES.items()])
def test_an_option_that_a_field_or_a_setting_stands_for_is_found(tmp_path: Path, extra: str, message: str) -> None:
    """Whether the profile sets the field or not: in either way the form does not know of the option."""
    assert finding_lines(tmp_path, f'"gpus": 1, "extra": ["{extra}"]') == [message.format("profile g: slurm.extra: ")]


BESIDE = {
    "--mem-per-cpu=2G": ('"memory": "4G"', "memory"),
    "--mem-per-gpu=2G": ('"memory": "4G"', "memory"),
    "--cpus-per-gpu=2": ('"cpus": 4', "cpus"),
    "--gpus-per-task=2": ('"gpus": 1', "gpus"),
    "--nice": ('"nice": 5', "nice"),
    "--nice=-5": ('"nice": 5', "nice"),
    "--qos=a,b": ('"qos": "a"', "qos"),
}


@pytest.mark.parametrize(("extra", "setting"), BESIDE.items(), ids=BESIDE)
def test_an_option_that_contradicts_a_field_is_found_where_the_field_is_set(
    tmp_path: Path, extra: str, setting: tuple[str, str]
) -> None:
    """Without the field it is the only way to say what it says."""
    fields, field = setting

    assert finding_lines(tmp_path, f'"extra": ["{extra}"]') == []
    assert finding_lines(tmp_path, f'{fields}, "extra": ["{extra}"]') == [
        f"warn  profile g: slurm.extra: {extra} contradicts slurm.{field}, which is set as well. Remove it, or "
        f"slurm.{field}. [extra-field]"
    ]


def test_a_sites_options_are_found_once_at_its_setting(tmp_path: Path) -> None:
    """Not again for each profile, nor for each value of an option."""
    options = '"profile_options": {"gpus": {"range": {"min": 1, "max": 8, "sets": "slurm.gpus"}}}'
    messages = finding_lines(tmp_path, '"gpus": 1', options, "c.GPUSlurmSpawner.req_options = '--mem=8G'")

    assert messages == [OF_FIELDS["--mem=8G"].format(f"{HUB}.req_options: ")]


def test_an_options_own_line_is_found_at_the_option(tmp_path: Path) -> None:
    """The place is that of the choice."""
    options = '"profile_options": {"m": {"choices": {"s": {}, "l": {"slurm": {"extra": ["--mem=9G"]}}}}}'

    assert [message.split(": --")[0] for message in finding_lines(tmp_path, '"gpus": 1', options)] == [
        "warn  profile g: profile_options.m.choices.l.slurm.extra"
    ]


def test_other_options_raise_no_alarm(tmp_path: Path) -> None:
    """Those for which neither a profile nor the hub has a name, and generic resources beside the GPUs."""
    lines = [
        "--gres-flags=enforce-binding",
        "--gres=license:1",
        "--mail-type=END --mail-user=ada@example.org",
        "--exclude=g1",
        "--mem-b=local",
        "--exc=g1",
        "-w g2",
        "--licenses=matlab",
        "--export=ALL,A=1",
        "--exclusive=user",
        "--tmp=10G",
        "--hint=nomultithread",
        "--signal=B:TERM@60",
    ]

    assert finding_lines(tmp_path, f'"gpus": 1, "memory": "4G", "cpus": 2, "extra": {lines}') == []


def test_gpus_that_extra_alone_requests_raise_no_alarm(tmp_path: Path) -> None:
    """They are part of the request that the form judges."""
    assert finding_lines(tmp_path, '"extra": ["--gres=gpu:2"]') == []
