"""Options of sbatch in `extra` that contradict what the profile's own fields, or the hub's settings, say."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check import profiles
from jupyterhub_gpuspawner.check.finding import Finding, Severity
from jupyterhub_gpuspawner.check.run import findings
from tests.check.sites import context

SHOWN = "which the form shows and by which it judges whether a job can start."
PLACE = "profile g: slurm.extra"
HUB = "c.GPUSlurmSpawner"


def found(folder: Path, slurm: str, more: str = "", settings: str = "") -> list[Finding]:
    """What the check finds in one profile."""
    profile = f'{{"display_name": "G", "slurm": {{"partition": "gpu", {slurm}}}, {more}}}'
    where = context(folder, f"{settings}\nc.GPUProfilesSpawner.profiles = [{profile}]")
    return [*asyncio.run(findings(where, [profiles.check_extra]))]


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
    "--account=a": ("--account=a", "account"),
    "--qos=a": ("--qos=a", "qos"),
    "--reservation=a": ("--reservation=a", "reservation"),
    "-C nvlink": ("--constraint=nvlink", "constraint"),
    "--exclusive": ("--exclusive", "exclusive"),
    "--part=hopper": ("--partition=hopper", "partition"),
    "--cpus-per-t 4": ("--cpus-per-task=4", "cpus"),
    "--exclusiv": ("--exclusive", "exclusive"),
    "--mail-type=END --mem=8G": ("--mem=8G", "memory"),
}


@pytest.mark.parametrize(("line", "said"), FIELDS.items(), ids=FIELDS)
def test_an_option_that_a_field_stands_for_is_found(tmp_path: Path, line: str, said: tuple[str, str]) -> None:
    """Whether the profile sets the field or not: in either way the form does not know of the option."""
    option, field = said
    text, fix = f"{option} overrides slurm.{field}, {SHOWN}", f"Set slurm.{field} instead."

    assert found(tmp_path, f'"gpus": 1, "extra": ["{line}"]') == [
        Finding(Severity.WARNING, "extra-field", PLACE, text, fix)
    ]


BESIDE = {
    "--mem-per-cpu=2G": ('"memory": "4G"', "memory"),
    "--mem-per-gpu=2G": ('"memory": "4G"', "memory"),
    "--cpus-per-gpu=2": ('"cpus": 4', "cpus"),
    "--gpus-per-task=2": ('"gpus": 1', "gpus"),
}


@pytest.mark.parametrize(("line", "said"), BESIDE.items(), ids=BESIDE)
def test_an_option_that_contradicts_a_field_is_found_where_the_field_is_set(
    tmp_path: Path, line: str, said: tuple[str, str]
) -> None:
    """Without the field it is the only way to say what it says."""
    fields, field = said
    text, fix = f"{line} contradicts slurm.{field}, which is set as well.", f"Remove it, or slurm.{field}."

    assert [found(tmp_path, f'{each}"extra": ["{line}"]') for each in (f"{fields}, ", "")] == [
        [Finding(Severity.WARNING, "extra-field", PLACE, text, fix)],
        [],
    ]


@pytest.mark.parametrize(
    ("line", "setting"),
    [("--output=/tmp/x", "log_dir"), ("-o /tmp/x", "log_dir"), ("--job-name=x", "job_name"), ("-J x", "job_name")],
)
def test_an_option_that_the_hub_sets_is_found(tmp_path: Path, line: str, setting: str) -> None:
    """What is right is the hub's setting."""
    (only,) = found(tmp_path, f'"extra": ["{line}"]')

    assert (only.severity, only.code, only.where) == (Severity.WARNING, "extra-setting", PLACE)
    assert only.fix == f"Remove it, and set {HUB}.{setting} instead."


@pytest.mark.parametrize("line", ["--export=NONE", "--export=HOME,PATH"])
def test_an_export_without_the_hubs_variables_is_an_error(tmp_path: Path, line: str) -> None:
    """The server's token is one of them."""
    text = f"{line} keeps the hub's variables from the job, so the server cannot sign in."

    assert found(tmp_path, f'"extra": ["{line}"]') == [
        Finding(Severity.ERROR, "extra-export", PLACE, text, "Remove it.")
    ]


def test_a_sites_options_are_found_once_at_its_setting(tmp_path: Path) -> None:
    """Not again for each profile, nor for each value of an option."""
    options = '"profile_options": {"gpus": {"range": {"min": 1, "max": 8, "sets": "slurm.gpus"}}}'
    told = found(tmp_path, '"gpus": 1', options, "c.GPUSlurmSpawner.req_options = '--mem=8G'")

    assert [(each.where, each.fix) for each in told] == [(f"{HUB}.req_options", "Set slurm.memory instead.")]


def test_an_options_own_line_is_found_at_the_option(tmp_path: Path) -> None:
    """The place is that of the choice."""
    options = '"profile_options": {"m": {"choices": {"s": {}, "l": {"slurm": {"extra": ["--mem=9G"]}}}}}'

    assert [each.where for each in found(tmp_path, '"gpus": 1', options)] == [
        "profile g: profile_options.m.choices.l.slurm.extra"
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

    assert found(tmp_path, f'"gpus": 1, "memory": "4G", "cpus": 2, "extra": {lines}') == []


def test_gpus_that_extra_alone_requests_raise_no_alarm(tmp_path: Path) -> None:
    """They are part of the request that the form judges."""
    assert found(tmp_path, '"extra": ["--gres=gpu:2"]') == []
