"""The configurations of the demo and of the guides cause no alarm on a cluster that has what they name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check.finding import Options, Severity
from jupyterhub_gpuspawner.demo import run
from jupyterhub_gpuspawner.extensions.courses.course import read_course
from jupyterhub_gpuspawner.profiles.files import Rights
from jupyterhub_gpuspawner.profiles.tuples import slug_of
from jupyterhub_gpuspawner.site.configuration import load_site
from tests.check.sites import HEAD, of_configuration
from tests.check.test_hub_mistakes import alarms, site
from tests.check.test_right_configurations import ROOT, assert_no_alarm
from tests.config.test_ansible import CONFIG, rendered

__all__ = ["site"]  # the fixture

YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ALLOWS = "c.GPUProfilesSpawner.profiles_dir_allows = ['command', 'software', 'local', 'setup', 'variables']\n"
GROUPS = "c.JupyterHub.load_groups = {'training': ['ada'], 'course': ['ada']}\n"


def of_demo(_folder: Path) -> str:
    """The profiles of the demo, with its times of use."""
    interval = f"c.GPUSlurmSpawner.usage_interval = {run.USAGE_SECONDS}"
    return f"{HEAD}{ALLOWS}{interval}\nc.GPUProfilesSpawner.profiles_dir = {str(run.PROFILES)!r}\n"


def of_docs(folder: Path) -> str:
    """The profiles of the guides; those that are shown twice have the same name."""
    profiles: dict[str, str] = {}
    for page in sorted((ROOT / "docs" / "howto").glob("*.md")):
        for text in YAML.findall(page.read_text()):
            document = read_course(text).value
            if isinstance(document, dict) and "display_name" in document:
                profiles[document.get("slug") or slug_of(document["display_name"])] = text
    for slug, text in profiles.items():
        (folder / f"{slug}.yaml").write_text(text)
    assert len(profiles) > 10
    return f"{HEAD}{ALLOWS}{GROUPS}c.GPUProfilesSpawner.profiles_dir = {str(folder)!r}\n"


RIGHT: dict[str, tuple[Callable[[Path], str], list[str]]] = {
    "demo": (of_demo, []),
    "docs": (of_docs, []),
}


@pytest.mark.parametrize(("lines", "warnings"), RIGHT.values(), ids=RIGHT.keys())
def test_a_configuration_that_is_shown_causes_no_alarm(
    tmp_path: Path, lines: Callable[[Path], str], warnings: list[str]
) -> None:
    """No error, and no warning but those that are true."""
    assert_no_alarm(tmp_path, lines, warnings)


@pytest.mark.parametrize("lines", [of_demo, of_docs], ids=lambda lines: lines.__name__)
async def test_the_configurations_that_are_shown_are_in_order(site: Path, lines: Callable[[Path], str]) -> None:
    """Those of the guides and of the demo name no setting that does not exist."""
    (site / "profiles").mkdir()
    text = lines(site / "profiles").replace("/no/such/folder", f"{site}/slurm")

    assert [line for line in await alarms(site, text) if "[setting-ignored]" not in line] == []


async def test_the_configuration_that_is_shipped_is_in_order(site: Path) -> None:
    """config/jupyterhub_config.py, with its folders and its address changed as an admin does, raises no alarm."""
    text = (CONFIG / "jupyterhub_config.py").read_text()
    for old, new in (
        ("/etc/jupyterhub/profiles", CONFIG / "profiles"),
        ("/etc/jupyterhub/courses", CONFIG / "courses"),
        ("/etc/jupyterhub/wrappers", site / "libexec"),
        ("10.0.0.10", "127.0.0.1"),  # the cluster is this machine
        ('"notebookusers"', '"users"'),
    ):
        assert old in text
        text = text.replace(old, str(new))
    text += f"\nc.GPUSlurmSpawner.slurm_bin_dir = '{site}/slurm'\n"

    assert await alarms(site, text, options=Options(added={"people": 50})) == []


async def test_the_demos_configuration_is_in_order(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is that of the demo, whose hub listens on a loopback address, since its nodes are on the same machine."""
    demo = Path(run.__file__).parent
    shutil.copytree(demo / "profiles", site / "demo" / "profiles")
    values = {"FOLDER": f"{site}/demo", "PORTS": "8000,8081,8001", "PASSWORD": "x", "TOKEN": "x" * 32}
    for name, value in {**values, "SINGLEUSER": "jupyterhub-singleuser", "SLURM": f"{site}/slurm"}.items():
        monkeypatch.setenv(f"GPUSPAWNER_DEMO_{name}", value)
    text = (demo / "jupyterhub_config.py").read_text()

    assert await alarms(site, text) == []


def test_the_playbooks_configuration_loads_and_sets_what_there_is(tmp_path: Path) -> None:
    """Every setting is one of its class; only Slurm is not here to be asked."""
    path = tmp_path / "jupyterhub_config.py"
    text = rendered("jupyterhub_config.py.j2")
    path.write_text(text)
    site = load_site(path)
    site.config.GPUProfilesSpawner.update({"profiles_dir": str(CONFIG / "profiles"), "courses_dir": ""})
    findings = of_configuration(site)
    traits = site.spawner_class.class_traits(config=True)

    assert [finding for finding in findings if finding.severity is Severity.ERROR and finding.where != "Slurm"] == []
    assert set(site.config.GPUProfilesSpawner) <= set(traits)
    assert set(site.config.GPUSlurmSpawner) <= set(traits)
    assert Rights(frozenset(site.config.GPUProfilesSpawner.profiles_dir_allows)).allowed
    assert "c.JupyterHub.hub_ip = '10.0.0.10'" in text
