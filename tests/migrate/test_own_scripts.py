"""Scripts of a site's own, taken apart: the hub's or a profile's, with options of several lines, traps and set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from batchspawner import SlurmSpawner
from traitlets.config import Config

from jupyterhub_gpuspawner.migrate.result import Migration
from tests.fixtures.batchspawners import rendered, requested, spawner_of
from tests.migrate.conftest import migrated_text
from tests.migrate.test_sites import new_script


def migrated(folder: Path, profiles: list[Any], **settings: str) -> Migration:
    """The result for a hub of wrapspawner, written to the folder."""
    lines = [f"c.SlurmSpawner.{name} = {value!r}" for name, value in settings.items()]
    lines += [
        "c.JupyterHub.spawner_class = 'wrapspawner.ProfilesSpawner'",
        f"c.ProfilesSpawner.profiles = {profiles!r}",
    ]
    return migrated_text("\n".join(lines), folder)


def profile(name: str, **traits: str) -> tuple[str, str, str, dict[str, str]]:
    """One of wrapspawner's."""
    return (name, name, "batchspawner.SlurmSpawner", traits)


OF_HUB = "#!/bin/bash\n#SBATCH --qos=hub --mem={memory}\nmodule load hub\n{prologue}\n{cmd}\n"
OWN = {
    "constants": "#SBATCH -p gpu --mem=4G -t 60 -c 2\n{cmd}",
    "variables": "#SBATCH --partition={partition} --time={runtime}\n{cmd}",
    "jinja": "{% if partition %}#SBATCH --partition={{partition}}\n{% endif %}{{cmd}}",
    "GPUs": "#SBATCH --gres=gpu:a100:2\n{cmd}",
    "a type of GPU": "#SBATCH --gres=gpu:a100:{ngpus}\n{cmd}",
    "another option": "#SBATCH --exclude=n1 --partition={partition}\n{cmd}",
    "the site's options": "#SBATCH {options}\n{cmd}",
    "text beside a variable": "#SBATCH --mem={memory}G --time={runtime}:00\n{cmd}",
    "more than cmd": "#SBATCH --partition={partition}\nsrun bash -c 'source env && exec {cmd}'",
    "one task": "#SBATCH --ntasks=1 --account=a\nsrun {cmd}",
    "a name": "#SBATCH --job-name=nb --output=/logs/%j\n{cmd}",
}
REQUESTS = {"req_partition": "p", "req_runtime": "8", "req_ngpus": "2", "req_options": "--exclusive --qos=own"}


@pytest.mark.parametrize("of_hub", [OF_HUB, ""], ids=["beside the hub's", "alone"])
@pytest.mark.parametrize("text", OWN.values(), ids=OWN)
def test_a_profiles_own_script_becomes_its_fields(text: str, of_hub: str, tmp_path: Path) -> None:
    """With what it passes on, and with nothing of the hub's; every difference of an option has its row."""
    used = {name: value for name, value in REQUESTS.items() if name[4:] in text}
    traits = {"batch_script": f"#!/bin/bash\n{text}\n", **used}
    if "{memory}" in text:
        traits["req_memory"] = "4"
    hub = {"batch_script": of_hub, "req_prologue": "module load site"} if of_hub else {}
    migration = migrated(tmp_path, [profile("a", **traits)], **hub)

    was = rendered(spawner_of(SlurmSpawner, Config({"SlurmSpawner": hub}), **traits))
    now = new_script(tmp_path, "a")
    assert requested(now) == requested(was)
    assert ("module load hub" in now, "module load site" in now) == (False, False)
    kept = bool({"template_kept"} & {row.code for row in migration.differences if "profiles[0]" in row.where})
    assert kept == ("4G" not in text and ("}G" in text or "bash -c" in text))


LINES = {
    "one option": "--qos=own",
    "several": "--account=a1\n#SBATCH --qos=normal\n#SBATCH --constraint=k80",
    "blanks": "  --account=a1  \n#SBATCH    --exclude=n1\n",
    "an empty line": "--account=a1\n\n#SBATCH --exclude=n1",
    "several in a line": "-A a1 --qos=normal\n#SBATCH -C k80 --nice=3",
    "a comment": "--account=a1 # of the institute\n#SBATCH --qos=normal",
    "a line that is a comment": "--account=a1\n# nothing\n#SBATCH --qos=normal",
    "with quotes": "--constraint='a|b'\n#SBATCH --exclude=n1",
    "flags": "--exclusive\n#SBATCH --nice",
    "no field": "--exclude=n1\n#SBATCH --mail-type=END",
    "none": "",
}
WITH_OPTIONS = "#!/bin/bash\n#SBATCH --mem=1G\n{% if options %}#SBATCH {{options}}\n{% endif %}{{cmd}}\n"


@pytest.mark.parametrize("of_site", ["", "--qos=site --nice=5\n#SBATCH --exclude=s1"], ids=["none", "the site's"])
@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_options_of_several_lines(text: str, of_site: str, tmp_path: Path) -> None:
    """All of them, and a profile's in place of the site's; a profile without has the site's."""
    hub = {"batch_script": WITH_OPTIONS, "req_options": of_site}
    migration = migrated(tmp_path, [profile("a", req_options=text), profile("b")], **hub)
    config = Config({"SlurmSpawner": hub})

    was = rendered(spawner_of(SlurmSpawner, config, req_options=text))
    assert requested(new_script(tmp_path, "a")) == requested(was)
    assert requested(new_script(tmp_path, "b")) == requested(rendered(spawner_of(SlurmSpawner, config)))
    assert [row for row in migration.differences if row.code == "option_not_passed_on"] == []


PROLOGUES = {
    "as batchspawner's own": (["set -euo pipefail", "{prologue}"], "module load a", "module load a"),
    "no set": (["{prologue}"], "module load a", "set +euo pipefail\nmodule load a"),
    "another set": (["set -e", "{prologue}"], "module load a", "set +euo pipefail\nset -e\nmodule load a"),
    "lines": (["set -e", "date", "{prologue}"], "", "set +euo pipefail\nset -e\ndate"),
    "strict lines": (["set -euo pipefail", "date"], "", "date"),
    "a trap for the end": (["trap 'rm -rf /s/x' EXIT"], "", "set +euo pipefail\ntrap 'rm -rf /s/x' EXIT"),
    "a trap for the end, 0": (["trap clean 0"], "", "set +euo pipefail\ntrap clean 0"),
    "a trap for both": (['trap "rm x" TERM EXIT'], "", 'set +euo pipefail\ntrap "rm x" TERM EXIT'),
    "a trap for a signal": (["trap 'echo got' TERM"], "", None),
    "a trap of several lines": (["trap 'a", "b' EXIT"], "", "set +euo pipefail\ntrap 'a\nb' EXIT"),
    "nothing": ([], "", None),
}


@pytest.mark.parametrize(("lines", "own", "expected"), PROLOGUES.values(), ids=PROLOGUES)
def test_lines_run_under_the_options_of_the_shell_that_they_had(
    lines: list[str], own: str, expected: str | None, tmp_path: Path
) -> None:
    """``req_prologue`` is run under batchspawner's own; a trap of the site's stays."""
    text = "\n".join(["#!/bin/bash", "#SBATCH --mem=1G", *lines, "{cmd}", ""])
    migration = migrated(tmp_path, [profile("a")], batch_script=text, **({"req_prologue": own} if own else {}))
    assert migration.settings.get("req_prologue") == expected


@pytest.mark.parametrize(
    ("template", "setup"),
    [
        ({}, ["set -euo pipefail", "module load a", "set +euo pipefail"]),
        (
            {"batch_script": "#!/bin/bash\nset -e\n{prologue}\n{cmd}\n"},
            ["set -e", "module load a", "set +euo pipefail"],
        ),
        ({"batch_script": "#!/bin/bash\n{prologue}\n{cmd}\n"}, ["module load a"]),
    ],
)
def test_a_profiles_prologue_ends_the_job_as_it_did(template: dict[str, str], setup: list[str], tmp_path: Path) -> None:
    """It has become the profile's setup, which does that only if it says so."""
    migration = migrated(tmp_path, [profile("a", req_prologue="module load a")], **template)
    assert migration.profiles[0].document["environment"] == {"setup": setup}
