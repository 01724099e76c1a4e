"""A site's own batch_script whose jobs would never start: the check of a hub without profiles, and of one with them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, load_site
from jupyterhub_gpuspawner.site.jobs import jobs_of
from tests.check.sites import HEAD, of_configuration

FAULTS = {
    "no cmd": ("srun jupyterhub-singleuser", "the template has no {cmd} outside of its comments."),
    "an unknown variable": ("echo {queu}\n{cmd}", "there is no value called 'queu'."),
    "an unknown variable's part, jinja": ("echo {{queu.name}}\n{{cmd}}", "'queu' is undefined."),
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


OF_A_FORM = {
    "a form": ("options_form", "{project}", ""),
    "a form and a size": ("options_form", "{project}\n#SBATCH --mem={size}G --time={hours}:00:00", ""),
    "a form and a unit too many": (
        "options_form",
        "{project}\n#SBATCH --mem={size}Gx",
        "sbatch does not take --mem=1Gx: ",
    ),
    "a form for jinja": ("options_form", "{{project}}\n{% for x in extra %}#SBATCH {{x}}\n{% endfor %}", ""),
    "no form": ("", "{project}", "there is no value called 'project'."),
}


@pytest.mark.parametrize(("setting", "option", "fault"), OF_A_FORM.values(), ids=OF_A_FORM)
def test_a_variable_that_a_form_gives_is_no_fault(setting: str, option: str, fault: str, tmp_path: Path) -> None:
    """And the job is shown with the values that are given, and a note for each other."""
    command = "{{cmd}}" if "{{" in option else "{cmd}"
    script = f"#!/bin/bash\n#SBATCH --account={option}\n{command}\n"
    (tmp_path / "c.py").write_text(
        HEAD.replace("gpu-profiles", "gpu-slurm")
        + f"c.SlurmSpawner.batch_script = {script!r}\n"
        + (f"c.Spawner.{setting} = '<input name=project>'\n" if setting else ""),
        encoding="utf-8",
    )
    site = load_site(tmp_path / "c.py")
    found = of_configuration(site)
    errors = [finding.text for finding in found if finding.severity is Severity.ERROR and finding.where != "Slurm"]
    assert [fault in text for text in errors] == [True] * bool(fault)
    if not setting:
        return
    (job,) = asyncio.run(jobs_of(site, {"profile": "x", "project": "p7"}, user="ada", account=SOMEBODY))
    assert "#SBATCH --account=p7\n" in job.script
    names = sorted(name for name in ("size", "hours", "extra") if name in option)
    assert [note.partition(" is empty: the site's form")[0] for note in job.notes][: len(names)] == names
    with pytest.raises(RequestError, match="project: 'a b' is not allowed"):
        asyncio.run(jobs_of(site, {"profile": "x", "project": "a b"}, user="ada", account=SOMEBODY))
