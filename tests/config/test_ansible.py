"""The example role: it parses, and every variable, file and setting in it is one that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.profiles.files import Rights
from jupyterhub_gpuspawner.site.configuration import load_site
from tests.check.sites import of_configuration

CONFIG = Path(__file__).parents[2] / "config"
ROLE = CONFIG / "ansible" / "roles" / "gpuspawner"
TEMPLATES = sorted(path.name for path in (ROLE / "templates").iterdir())


def variables() -> dict[str, Any]:
    """The role's variables, with those inside of others filled in."""
    known: dict[str, Any] = {"role_path": str(ROLE)}
    for name, value in yaml.safe_load((ROLE / "defaults" / "main.yml").read_text()).items():
        text = environment().from_string(yaml.safe_dump(value)).render(known)
        known[name] = yaml.safe_load(text)
    return known


def environment() -> Environment:
    """Jinja2 as Ansible uses it."""
    made = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 - no HTML
    made.globals["lookup"] = lambda _kind, path: Path(path).read_text().rstrip("\n")
    return made


def rendered(template: str) -> str:
    """A template of the role with the defaults."""
    return environment().from_string((ROLE / "templates" / template).read_text()).render(variables())


def test_every_variable_has_a_default() -> None:
    """In tasks and in templates."""
    texts = [path.read_text() for path in ROLE.rglob("*") if path.is_file()]
    used = {name for text in texts for name in re.findall(r"\bgpuspawner_\w+", text)}

    assert used == set(variables()) - {"role_path"}


def test_every_file_that_is_copied_is_there() -> None:
    """Templates of the role, and files of config."""
    tasks = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    named = {task["ansible.builtin.template"]["src"] for task in tasks if "ansible.builtin.template" in task}
    known = variables()
    copied = [known["gpuspawner_profiles"], known["gpuspawner_courses"], f"{known['gpuspawner_config']}/wrappers/"]

    assert named == set(TEMPLATES)
    assert [path for path in copied if not any(Path(path).iterdir())] == []


def test_this_package_is_not_taken_from_an_index() -> None:
    """It is installed as root, and until the first release anybody may take its name on PyPI."""
    named = [name for name in variables()["gpuspawner_packages"] if "gpuspawner" in name]

    assert named
    assert [name for name in named if "/" not in name] == []


@pytest.mark.parametrize("name", ["sudoers", "jupyterhub.service", "jupyterhub-proxy.service"])
def test_unit_and_sudoers_are_those_of_config(name: str) -> None:
    """With the defaults, nothing in them is replaced by anything else."""
    assert rendered(f"{name}.j2") == (CONFIG / name).read_text()


def test_the_configuration_loads_and_sets_what_there_is(tmp_path: Path) -> None:
    """Every setting is one of its class; only Slurm is not here to be asked."""
    path = tmp_path / "jupyterhub_config.py"
    text = rendered("jupyterhub_config.py.j2")
    path.write_text(text)
    site = load_site(path)
    site.config.GPUProfilesSpawner.update({"profiles_dir": str(CONFIG / "profiles"), "courses_dir": ""})
    found = of_configuration(site)
    traits = site.spawner_class.class_traits(config=True)

    assert [each for each in found if each.severity is Severity.ERROR and each.where != "Slurm"] == []
    assert set(site.config.GPUProfilesSpawner) <= set(traits)
    assert set(site.config.GPUSlurmSpawner) <= set(traits)
    assert Rights(frozenset(site.config.GPUProfilesSpawner.profiles_dir_allows)).allowed
    assert "c.JupyterHub.hub_ip = '10.0.0.10'" in text
