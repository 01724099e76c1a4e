"""The trial of a job that depends on what a site's own form sends, which nobody has chosen in a check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.extensions.availability.checks import OF_FORM, check_trials
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.configuration import Site


async def test_a_job_of_a_form_is_not_tried() -> None:
    """It says which of the template's variables the form gives."""
    settings = {"batch_script": "#!/bin/bash\n#SBATCH -A {project} -p {partition} -c {cores}\n{cmd}\n"}
    config = Config({"GPUSlurmSpawner": {**settings, "options_form": "<input name=project>"}})
    context: Any = SimpleNamespace(
        options=SimpleNamespace(user="nobody", groups=()),
        slurm_error=None,
        people=SimpleNamespace(groups={}),
        site=Site(config, GPUSlurmSpawner),
        cluster="",
        has_profiles=False,
        chosen=tuple,
    )
    (finding,) = [finding async for finding in check_trials(context)]

    assert (finding.code, finding.where) == (OF_FORM.name, "user nobody")
    assert finding.text == "not tried: what the form sends decides (cores, project)."
