"""The configurations of the demo and of the guides cause no alarm on a cluster that has what they name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.profiles.files import read_document
from jupyterhub_gpuspawner.profiles.tuples import slug_of
from tests.check.sites import HEAD
from tests.check.test_hub_mistakes import alarms, site
from tests.check.test_right_configurations import ROOT, assert_no_alarm

__all__ = ["site"]  # the fixture

YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ALLOWS = "c.GPUProfilesSpawner.profiles_dir_allows = ['command', 'software', 'local', 'setup', 'variables']\n"
GROUPS = "c.JupyterHub.load_groups = {'training': ['ada'], 'course': ['ada']}\n"


def of_demo(_folder: Path) -> str:
    """The profiles of the demo."""
    return f"{HEAD}{ALLOWS}c.GPUProfilesSpawner.profiles_dir = '{ROOT}/jupyterhub_gpuspawner/demo/profiles'\n"


def of_docs(folder: Path) -> str:
    """The profiles of the guides; those that are shown twice have the same name."""
    profiles: dict[str, str] = {}
    for page in sorted((ROOT / "docs" / "howto").glob("*.md")):
        for text in YAML.findall(page.read_text()):
            document = read_document(text).value
            if isinstance(document, dict) and "display_name" in document:
                profiles[document.get("slug") or slug_of(document["display_name"])] = text
    for slug, text in profiles.items():
        (folder / f"{slug}.yaml").write_text(text)
    assert len(profiles) > 10
    return f"{HEAD}{ALLOWS}{GROUPS}c.GPUProfilesSpawner.profiles_dir = {str(folder)!r}\n"


RIGHT: dict[str, tuple[Callable[[Path], str], list[str]]] = {
    # on purpose: somebody can watch a server end, and another one become idle
    "demo": (of_demo, ["time-doubtful", "idle-too-fine"]),
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
