"""Settings that had no effect with batchspawner or wrapspawner, as their own spawners show, and have one here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from batchspawner import SlurmSpawner
from traitlets.config import Config
from wrapspawner import ProfilesSpawner

from jupyterhub_gpuspawner.batch.template import names_in
from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.check.inherited_settings import BATCHSPAWNER, Effect
from jupyterhub_gpuspawner.check.now_effective import NOT_REQUESTED
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, NamedHub, NamedUser, load_site, read_config
from tests.check.sites import HEAD, of_configuration
from tests.fixtures.batchspawners import rendered, spawner_of

SLURM = "'batchspawner.SlurmSpawner'"
PROFILES = f"c.ProfilesSpawner.profiles = [('A', 'a', {SLURM}, {{}})]\n"
TEMPLATE = "c.SlurmSpawner.batch_script = '#!/bin/bash\\n#SBATCH -A {account} -p x\\n{cmd}\\n'\n"
CASES: dict[str, tuple[str, list[str]]] = {
    "requests without a line": (
        "c.SlurmSpawner.req_account = 'x'\nc.BatchSpawnerBase.req_ngpus = '1'\n",
        ["c.SlurmSpawner.req_account", "c.BatchSpawnerBase.req_ngpus"],
    ),
    "of a QOS": ("c.SlurmSpawner.req_qos = 'x'\n", ["c.SlurmSpawner.req_qos"]),
    "an empty one": ("c.SlurmSpawner.req_account = ''\n", []),
    "with a line": ("c.SlurmSpawner.req_partition = 'x'\nc.SlurmSpawner.req_gres = 'gpu:1'\n", []),
    "with a line of the site's": (TEMPLATE + "c.SlurmSpawner.req_account = 'x'\n", []),
    "with a field of the command": (
        "c.SlurmSpawner.batch_submit_cmd = 'sbatch -A {{account}}'\nc.SlurmSpawner.req_account = 'x'\n",
        [],
    ),
    "meant so": ("c.GPUSlurmSpawner.req_account = 'x'\n", []),
    "a command without a wrapper": ("c.SlurmSpawner.cmd = ['lab']\n", []),
    "a command below a wrapper": (PROFILES + "c.SlurmSpawner.cmd = ['lab']\n", ["c.SlurmSpawner.cmd"]),
    "a command of all below a wrapper": (PROFILES + "c.Spawner.cmd = ['lab']\n", []),
    "the same one": (PROFILES + "c.SlurmSpawner.cmd = ['lab']\nc.Spawner.cmd = ['lab']\n", []),
    "a request below a wrapper": (PROFILES + "c.SlurmSpawner.req_runtime = '60'\n", []),
    "of a profile": (PROFILES.replace("{}", "{'req_ngpus': '1', 'req_gres': 'x'}"), ["profile a: req_ngpus"]),
    "of a profile with a script": (
        PROFILES.replace("{}", "{'req_account': '1', 'batch_script': '#SBATCH -A {account}\\n{cmd}'}"),
        [],
    ),
    "of a profile that is meant so": (
        PROFILES.replace("c.Profiles", "c.GPUProfiles").replace("{}", "{'req_ngpus': '1'}"),
        [],
    ),
}


@pytest.mark.parametrize(("lines", "named"), CASES.values(), ids=CASES)
def test_what_has_an_effect_only_here_is_named(lines: str, named: list[str], tmp_path: Path) -> None:
    """As the admin wrote it, with the section in which it is meant."""
    path = tmp_path / "c.py"
    path.write_text(HEAD.replace("gpu-profiles", "gpu-profiles" if "Profiles" in lines else "gpu-slurm") + lines)
    found = [finding for finding in of_configuration(load_site(path)) if finding.code == "setting-effective"]

    assert [finding.where for finding in found] == named
    assert all(finding.severity is Severity.WARNING and "c.GPU" in finding.fix for finding in found)


CLASS = """
from traitlets import Unicode, default
from {package} import {base} as SlurmSpawner
class Base(SlurmSpawner):
    req_qos = Unicode("b").tag(config=True)
    req_ngpus = Unicode("").tag(config=True)
class Site(Base):
    req_partition = Unicode("y").tag(config=True)
    @default("req_account")
    def _account(self):
        return "of-" + self.user.name
"""
OURS = CLASS.format(package="jupyterhub_gpuspawner", base="GPUSlurmSpawner") + "c.JupyterHub.spawner_class = Site\n"
OF_PROFILE = CLASS.format(package="batchspawner", base="SlurmSpawner")
OF_PROFILE += "c.ProfilesSpawner.profiles = [('A', 'a', Site, {'req_ngpus': '1'})]\n"
HOOK = (
    "def hook(spawner, state):\n    spawner.req_account = state['project']\n    spawner.req_memory = spawner.req_qos\n"
)
CODE: dict[str, tuple[str, list[str]]] = {
    "of a class": (OURS, ["Site.req_account", "Base.req_qos"]),
    "of a class that is overridden": (OURS + "c.GPUSlurmSpawner.req_account = 'x'\n", ["Base.req_qos"]),
    "of a class with a script": (OURS + "c.GPUSlurmSpawner.batch_script = '#SBATCH -A {account}\\n{cmd}'\n", []),
    "of a profile's class": (OF_PROFILE, [f"profile a: req_{name}" for name in ("account", "ngpus", "qos")]),
    "of a hook": (f"{HOOK}c.Spawner.auth_state_hook = hook\n", ["c.Spawner.auth_state_hook: req_account"]),
    "of a hook beside profiles of this package's": (
        f"{HOOK}c.Spawner.auth_state_hook = hook\nc.GPUProfilesSpawner.profiles = [{{'display_name': 'A'}}]\n",
        [],
    ),
    "of a hook that is meant so": (f"{HOOK}c.GPUSlurmSpawner.auth_state_hook = hook\n", []),
}


@pytest.mark.parametrize(("lines", "named"), CODE.values(), ids=CODE)
def test_what_code_of_the_sites_requests_is_named(lines: str, named: list[str], tmp_path: Path) -> None:
    """As a setting is: a class and a hook had as little effect."""
    test_what_has_an_effect_only_here_is_named(lines, named, tmp_path)


def test_every_request_without_a_line_is_known() -> None:
    """Of those that have an effect here; the cluster is in the commands."""
    kept = {setting.name for setting in BATCHSPAWNER if setting.effect is Effect.KEPT and setting.name[:4] == "req_"}
    lines = {f"req_{name}" for name in names_in(SlurmSpawner.batch_script.default_value)}

    assert kept - lines - {"req_cluster"} == set(NOT_REQUESTED)


def script_of(config: Config) -> str:
    """That of batchspawner's spawner, or of the child of wrapspawner's."""
    spawner: Any = spawner_of(SlurmSpawner, config)
    if "ProfilesSpawner" in config:
        wrapper = ProfilesSpawner(config=config, user=NamedUser(SOMEBODY.name), hub=NamedHub())
        wrapper.user_options = {"profile": "a"}
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of its own
            wrapper.construct_child()
        spawner = wrapper.child_spawner
        spawner.req_homedir, spawner.req_keepvars = SOMEBODY.home, "JUPYTERHUB_USER"
    return rendered(spawner).replace("jupyterhub-singleuser", spawner.cmd_formatted_for_batch())


@pytest.mark.parametrize("lines", [lines for lines, named in CASES.values() if named])
def test_they_had_no_effect(lines: str, tmp_path: Path) -> None:
    """The script is the one without these lines."""
    scripts = []
    for text in (lines, PROFILES if "Profiles" in lines else ""):
        path = tmp_path / "c.py"
        path.write_text(text.replace("'req_gres': 'x'", "").replace(", }", "}"))
        scripts.append(script_of(read_config(path)))

    assert scripts[0] == scripts[1]
