"""A site's own batch_script whose jobs would never start: the check of a hub without profiles, and of one with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.site.configuration import load_site
from tests.check.sites import HEAD, of_configuration

FAULTS = {
    "no cmd": ("srun jupyterhub-singleuser", "the template has no {cmd} outside of its comments."),
    "an unknown variable": ("echo {queu}\n{cmd}", "there is no value called 'queu'."),
    "an unknown variable, jinja": ("echo {{queu}}\n{{cmd}}", "'queu' is undefined."),
    "braces of the shell": ("echo ${HOME}\n{cmd}", "there is no value called 'HOME'."),
    "memory": ("#SBATCH --mem={memory}per\n{cmd}", "sbatch does not take --mem=4Gper: "),
    "memory of a CPU": ("#SBATCH --mem-per-cpu=lots\n{cmd}", "sbatch does not take --mem-per-cpu=lots: "),
    "a unit too many": ("#SBATCH --mem={partition}G\n{cmd}", "sbatch does not take --mem=cpuG: "),
    "a time": ("#SBATCH --time={runtime}h\n{cmd}", "sbatch does not take --time=8:00:00h: "),
    "quotes": ("#SBATCH --job-name='nb\n{cmd}", "sbatch cannot read the options of the script: "),
    "a condition that is not ended": ("{% if memory %}\n{{cmd}}", "Unexpected end of template."),
    "no fault": ("#SBATCH --mem={memory}\n{cmd}", ""),
}


@pytest.mark.parametrize(("body", "fault"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("spawner", ["gpu-slurm", "gpu-profiles"])
def test_a_script_that_never_starts_is_wrong(body: str, fault: str, spawner: str, tmp_path: Path) -> None:
    """Without a user being named."""
    settings = {"partition": "cpu", "memory": "4G", "runtime": "8:00:00"}
    (tmp_path / "c.py").write_text(
        HEAD.replace("gpu-profiles", spawner)
        + "".join(f"c.SlurmSpawner.req_{name} = {value!r}\n" for name, value in settings.items())
        + f"c.SlurmSpawner.batch_script = {f'#!/bin/bash{chr(10)}{body}{chr(10)}'!r}\n"
        + ('c.ProfilesSpawner.profiles = [("A", "a", "batchspawner.SlurmSpawner", {})]\n' * (spawner != "gpu-slurm")),
        encoding="utf-8",
    )
    found = of_configuration(load_site(tmp_path / "c.py"))
    errors = [finding.text for finding in found if finding.severity is Severity.ERROR and finding.where != "Slurm"]
    assert [fault in text for text in errors] == [True] * bool(fault)
