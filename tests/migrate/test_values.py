"""Values and names that no field takes: each is a row of the list, and all others are in the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.migrate.result import Kind, Migration
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.slurm.sbatch_options import options_of
from tests.check.sites import HEAD, of_configuration
from tests.migrate.conftest import migrated_text

SLURM = "batchspawner.SlurmSpawner"
OTHER = ("Other", "other", SLURM, {"req_partition": "cpu", "req_memory": "8G"})
OTHERS_DOCUMENT = {"display_name": "Other", "slug": "other", "slurm": {"partition": "cpu", "memory": "8G"}}
PROFILES = "c.ProfilesSpawner.profiles[0]"
SHELL_COMMAND = "unset XDG_RUNTIME_DIR\nsh /site/tree.sh\n/site/bin/python -E /site/bin/jupyterhub-singleuser"


def profile_of(traits: dict[str, Any]) -> tuple[str, str, str, dict[str, Any]]:
    """A tuple of wrapspawner's."""
    return ("One", "one", SLURM, traits)


def of_profiles(*profiles: Any) -> str:
    """A hub of wrapspawner's."""
    return f'c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"\nc.ProfilesSpawner.profiles = {[*profiles]!r}\n'


def rows_of(migration: Migration, *kinds: Kind) -> list[tuple[str, str, str, str]]:
    """The rows about single profiles and settings, without those that every hub has."""
    every = ("start_timeout", "prefix_default", "spawner_class", "no_gpus", "moved", "not_in_file")
    return [
        (row.code, row.where, row.was, row.now)
        for row in migration.differences
        if row.code not in every and not row.where.startswith("--") and row.kind in (kinds or Kind)
    ]


VALUES: dict[str, tuple[dict[Any, Any], dict[str, Any], list[tuple[str, str, str, str]]]] = {
    "a name that is no text": (
        {7: 1, "req_partition": "main"},
        {"slurm": {"partition": "main"}},
        [("dropped_by_wrapspawner", f"{PROFILES}: 7", "1", "")],
    ),
    "names that the class does not have": (
        {"req_nodes": "1", "req_cores": "2", "req_culltime": 3900, "req_partition": "main"},
        {"slurm": {"partition": "main"}},
        [
            ("dropped_by_wrapspawner", f"{PROFILES}: req_cores", "2", ""),
            ("dropped_by_wrapspawner", f"{PROFILES}: req_culltime", "3900", ""),
            ("dropped_by_wrapspawner", f"{PROFILES}: req_nodes", "1", ""),
        ],
    ),
    "a name that is no request": (
        {"condaenv": "base", "req_partition": "main"},
        {"slurm": {"partition": "main"}},
        [("dropped_by_wrapspawner", f"{PROFILES}: condaenv", "base", "")],
    ),
    "no time limit": ({"req_runtime": "0"}, {"slurm": {"time": "UNLIMITED"}}, []),
    "no time limit, in full": ({"req_runtime": "0:00:00"}, {"slurm": {"time": "UNLIMITED"}}, []),
    "a time that is none": (
        {"req_runtime": "forever", "req_memory": "4G"},
        {"slurm": {"memory": "4G"}},
        [("value_refused", f"{PROFILES}: req_runtime", "forever", "left out")],
    ),
    "memory that is none": (
        {"req_memory": "lots", "req_partition": "main"},
        {"slurm": {"partition": "main"}},
        [("value_refused", f"{PROFILES}: req_memory", "lots", "left out")],
    ),
    "numbers where texts are": (
        {"req_memory": 2200, "req_nprocs": 2, "req_runtime": 90, "req_account": 12},
        {"slurm": {"cpus": 2, "memory": 2200, "time": 90, "account": 12}},
        [],
    ),
    "two partitions with a blank": (
        {"req_partition": "a b", "req_nprocs": "2"},
        {"slurm": {"cpus": 2}},
        [("value_refused", f"{PROFILES}: req_partition", "a b", "left out")],
    ),
    "GPUs that are no number": (
        {"req_ngpus": "a100:2", "req_nprocs": "2"},
        {"slurm": {"cpus": 2}},
        [("value_refused", f"{PROFILES}: req_ngpus", "a100:2", "left out")],
    ),
    "generic resources that are none": (
        {"req_gres": "gpu;2", "req_nprocs": "2"},
        {"slurm": {"cpus": 2}},
        [("value_refused", f"{PROFILES}: req_gres", "gpu;2", "left out")],
    ),
    "options of several lines": (
        {"req_options": "--account=a1\n#SBATCH --qos=normal\n#SBATCH --exclude=n1\n"},
        {"slurm": {"account": "a1", "qos": "normal", "extra": "--exclude=n1"}},
        [],
    ),
    "an option that the hub needs": (
        {"req_options": "--comment=x --qos=normal --exclude=n1"},
        {"slurm": {"qos": "normal", "extra": "--exclude=n1"}},
        [
            (
                "value_refused",
                f"{PROFILES}: req_options",
                "--comment=x --qos=normal --exclude=n1",
                "--qos=normal --exclude=n1",
            )
        ],
    ),
    "an unbalanced quote": (
        {"req_options": "--exclude='n1", "req_nprocs": "2"},
        {"slurm": {"cpus": 2}},
        [("value_refused", f"{PROFILES}: req_options", "--exclude='n1", "left out")],
    ),
    "a command of several lines": (
        {"cmd": SHELL_COMMAND},
        {
            "command": ["/site/bin/python", "-E", "/site/bin/jupyterhub-singleuser"],
            "environment": {"setup": ["unset XDG_RUNTIME_DIR", "sh /site/tree.sh"]},
        },
        [
            (
                "command_lines",
                "profile one: command",
                SHELL_COMMAND.replace("\n", "\\n"),
                "environment.setup, and command",
            )
        ],
    ),
    "a command that is a text": (
        {"cmd": "/site/bin/jupyterhub-singleuser --debug"},
        {"command": ["/site/bin/jupyterhub-singleuser", "--debug"]},
        [],
    ),
}


@pytest.mark.parametrize(("traits", "document", "rows"), VALUES.values(), ids=VALUES.keys())
def test_one_value_leaves_the_rest_as_it_is(
    tmp_path: Path, traits: dict[str, Any], document: dict[str, Any], rows: list[tuple[str, str, str, str]]
) -> None:
    """The profile has all that can be converted, the other profile is whole, and the result is without fault."""
    migration = migrated_text(of_profiles(profile_of(traits), OTHER), tmp_path)
    first, other = (converted.document for converted in migration.profiles)
    slurm = {name: value for name, value in first.get("slurm", {}).items() if value is not None}

    assert ({**first, "slurm": slurm} if slurm else first) == {
        "display_name": "One",
        "slug": "one",
        "default": True,
        **document,
    }
    assert other == OTHERS_DOCUMENT
    assert rows_of(migration) == rows
    wrong = [finding for finding in of_configuration(load_site(tmp_path / "jupyterhub_config.py")) if finding.where]
    assert [finding for finding in wrong if finding.severity is Severity.ERROR and finding.where != "Slurm"] == []


REFUSED: dict[str, tuple[Any, str]] = {
    "a tuple of three": ((1, 2, 3), "1"),
    "no tuple": (7, "7"),
    "a name that is no text": ((4, "one", SLURM, {}), "4"),
    "a size that is none": (("One", "one", SLURM, {"mem_limit": []}), "One"),
    "traits that are no dict": (("One", "one", SLURM, ["req_memory"]), "One"),
    "a field of ours": (("One", "one", SLURM, {"slurm": {}}), "One"),
    "a setting of a wrong type": (("One", "one", SLURM, {"notebook_dir": 4}), "One"),
    "a setting of the hub's": (("One", "one", SLURM, {"exec_prefix": "sudo"}), "One"),
    "a class that is none": (("One", "one", "os.path", {}), "One"),
    "GPUs and shards": (("One", "one", SLURM, {"req_ngpus": "1", "req_gres": "shard:2"}), "One"),
    "a template without {cmd}": (("One", "one", SLURM, {"batch_script": "#!/bin/bash\nexec jupyter lab\n"}), "One"),
}


@pytest.mark.parametrize(("profile", "name"), REFUSED.values(), ids=REFUSED.keys())
def test_one_profile_leaves_the_others_as_they_are(tmp_path: Path, profile: Any, name: str) -> None:
    """It is a row to decide about, and nothing else is said of it."""
    migration = migrated_text(of_profiles(profile, OTHER), tmp_path)

    assert [converted.document for converted in migration.profiles] == [
        {"display_name": "Other", "slug": "other", "default": True, "slurm": OTHERS_DOCUMENT["slurm"]}
    ]
    assert rows_of(migration) == [("profile_refused", PROFILES, name, "left out")]
    assert [row.where for row in migration.differences if row.code == "moved"] == ["c.ProfilesSpawner.profiles[1]"]


OF_HUB: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[tuple[str, str, str, str]]]] = {
    "no time limit": ("req_runtime = '0'", {}, {"time": "UNLIMITED"}, []),
    "a number": ("req_nprocs = 4", {}, {"cpus": 4}, []),
    "a size that is none": (
        "mem_limit = []",
        {},
        {},
        [("value_refused", "c.SlurmSpawner.mem_limit", "[]", "left out")],
    ),
    "memory that is none": (
        "req_memory = 'lots'",
        {},
        {},
        [("value_refused", "c.SlurmSpawner.req_memory", "lots", "left out")],
    ),
    "options of several lines": (
        "req_options = '--qos=a\\n#SBATCH --exclude=n1'",
        {},
        {"qos": "a", "extra": "--exclude=n1"},
        [],
    ),
    "a command of several lines": (
        "cmd = 'module load python\\njupyterhub-singleuser --debug'",
        {"cmd": ["jupyterhub-singleuser", "--debug"], "req_prologue": "module load python"},
        {},
        [
            (
                "command_lines",
                "c.SlurmSpawner.cmd",
                "module load python\\njupyterhub-singleuser --debug",
                "c.GPUSlurmSpawner.req_prologue, and cmd",
            )
        ],
    ),
    "a setting of a wrong type": (
        "notebook_dir = ['a']",
        {},
        {},
        [("value_refused", "c.SlurmSpawner.notebook_dir", "['a']", "left out")],
    ),
    "a text that is a number": ("notebook_dir = 7", {"notebook_dir": "7"}, {}, []),
    "a name that nobody has": (
        "req_nodes = '1'",
        {},
        {},
        [("unknown_setting", "c.SlurmSpawner.req_nodes", "1", "left out")],
    ),
    "a template without {cmd}": (
        "batch_script = '#!/bin/bash\\nsleep 9\\n'",
        {},
        {},
        [("template_refused", "c.SlurmSpawner.batch_script", "#!/bin/bash\\nsleep 9", "left out")],
    ),
    "a template that nobody can read": (
        "batch_script = '#!/bin/bash\\n{% if partition\\n{{cmd}}\\n'",
        {},
        {},
        [
            (
                "template_refused",
                "c.SlurmSpawner.batch_script",
                "#!/bin/bash\\n{% if partition\\n{{cmd}}",
                "left out",
            )
        ],
    ),
}


@pytest.mark.parametrize(("line", "settings", "slurm", "rows"), OF_HUB.values(), ids=OF_HUB.keys())
def test_one_setting_leaves_the_others_as_they_are(
    tmp_path: Path,
    line: str,
    settings: dict[str, Any],
    slurm: dict[str, Any],
    rows: list[tuple[str, str, str, str]],
) -> None:
    """As for profiles."""
    text = f"c.JupyterHub.spawner_class = {SLURM!r}\nc.SlurmSpawner.{line}\nc.SlurmSpawner.req_partition = 'main'\n"
    migration = migrated_text(text, tmp_path)

    (profile,) = migration.profiles
    assert migration.settings == settings
    assert profile.document["slurm"] == {"partition": "main", **slurm}
    assert [row for row in rows_of(migration) if row[0] != "template_kept"] == rows
    assert not {"template_kept", "template_refused"} <= {row.code for row in migration.differences}
    load_site(tmp_path / "jupyterhub_config.py").spawner("ada").check()


CLASSES: dict[str, tuple[str, list[str], str]] = {
    "a name": ("c.WrapSpawner.child_class = 'batchspawner.SlurmSpawner'", [], "wrapspawner.WrapSpawner"),
    "settings": (
        "c.WrapSpawner.child_class = 'batchspawner.SlurmSpawner'\nc.WrapSpawner.child_config = {'req_memory': '4gb'}",
        ["memory"],
        "wrapspawner.WrapSpawner",
    ),
    "a class of the site's": (
        "from wrapspawner import WrapSpawner\nclass OptionsFormSpawner(WrapSpawner): pass\n"
        "c.JupyterHub.spawner_class = OptionsFormSpawner\n"
        "c.OptionsFormSpawner.child_class = 'batchspawner.SlurmSpawner'\n"
        "c.OptionsFormSpawner.child_config = {'req_memory': '4gb', 'req_cores': '2'}",
        ["memory"],
        "",
    ),
    "a class of the site's with another name": (
        "from wrapspawner import WrapSpawner\nfrom batchspawner import SlurmSpawner\n"
        "class SiteWrapper(WrapSpawner): pass\n"
        "c.JupyterHub.spawner_class = SiteWrapper\nc.SiteWrapper.child_class = SlurmSpawner\n"
        "c.SiteWrapper.child_config = {'req_memory': '4gb', 'req_partition': 'debug'}",
        ["partition", "memory"],
        "",
    ),
}


@pytest.mark.parametrize(("lines", "fields", "spawner"), CLASSES.values(), ids=CLASSES.keys())
def test_a_wrapper_of_one_class_is_one_profile(tmp_path: Path, lines: str, fields: list[str], spawner: str) -> None:
    """Its form chose settings of the one class; the class's own are the profile's."""
    named = f"c.JupyterHub.spawner_class = {spawner!r}\n" if spawner else ""
    migration = migrated_text(f"{named}{lines}\n", tmp_path)

    (profile,) = migration.profiles
    assert (profile.slug, list(profile.document.get("slurm", {}))) == ("server", fields)
    assert "no_profiles" not in [row.code for row in migration.differences]


@pytest.mark.parametrize("profiles", ["[(1, 2, 3)]", "7"])
def test_a_hub_without_profiles_says_so(tmp_path: Path, profiles: str) -> None:
    """The settings are printed, and that nobody can start a server is to be decided."""
    migration = migrated_text(of_profiles().replace("[]", profiles), tmp_path)

    assert migration.profiles == []
    assert [row[0] for row in rows_of(migration)] == ["profile_refused", "no_profiles"]


SLUGS: dict[str, tuple[list[tuple[str, Any]], list[str]]] = {
    "the same key twice": ([("A", "a"), ("B", "a")], ["a", "a-2"]),
    "keys that differ in blanks": ([("A", "gpu 1"), ("B", "gpu-1")], ["gpu-1", "gpu-1-2"]),
    "a key that is no text": ([("A", ["a"]), ("B", "b")], ["a", "b"]),
    "keys without a letter": ([("A", "日本"), ("B", "!")], ["profile", "profile-2"]),
}


@pytest.mark.parametrize(("names", "slugs"), SLUGS.values(), ids=SLUGS.keys())
def test_each_profile_has_a_slug_of_its_own(tmp_path: Path, names: list[tuple[str, Any]], slugs: list[str]) -> None:
    """wrapspawner's keys may be any text."""
    migration = migrated_text(of_profiles(*((*name, SLURM, {"req_nprocs": "1"}) for name in names)), tmp_path)

    assert [profile.slug for profile in migration.profiles] == slugs


def test_the_rows_have_the_slug_that_a_profile_gets(tmp_path: Path) -> None:
    """And say that nobody could start a second profile with a key."""
    profiles = [("A", "a", SLURM, {"req_nprocs": "1"}), ("B", "a", SLURM, {"req_prologue": "date"})]
    migration = migrated_text(of_profiles(*profiles, ("C", "a.", SLURM, {})), tmp_path)
    second = [(row.code, row.was, row.now) for row in migration.differences if row.where == f"{PROFILES[:-3]}[1]"]

    assert sorted(second) == [("moved", "B", "profile a-2"), ("same_key", "a", "profile a-2")]
    assert [row.where for row in migration.differences if row.code == "same_key"] == [f"{PROFILES[:-3]}[1]"]


QUOTED = {
    "a blank": '--mail-user="a b"',
    "a quote in it": "--wckey='my \"key\"'",
    "a backslash": r'--wckey="a\\b"',
    "a sign of a comment": "--wckey='a#b'",
    "nothing": "--exclude=n1",
}


@pytest.mark.parametrize("text", QUOTED.values(), ids=QUOTED)
def test_an_option_beside_those_that_become_fields_stays_as_sbatch_reads_it(text: str, tmp_path: Path) -> None:
    """Whatever its quotes."""
    traits = {"req_options": f"{text} --qos=a --comment=x"}
    migration = migrated_text(of_profiles(("One", "one", SLURM, traits), OTHER), tmp_path)
    slurm = migration.profiles[0].document["slurm"]

    assert (slurm["qos"], [*options_of(slurm["extra"])]) == ("a", [*options_of(text)])


def test_the_row_of_an_option_that_became_a_field_names_where_it_was(tmp_path: Path) -> None:
    """Not the template, which has none."""
    text = f"c.JupyterHub.spawner_class = {SLURM!r}\nc.SlurmSpawner.req_options = '--qos=a --exclude=n1'\n"
    rows = {row.was: row.where for row in migrated_text(text, tmp_path).differences if row.code == "moved"}

    assert rows == {"a": "c.SlurmSpawner.req_options", "--exclude=n1": "c.SlurmSpawner.req_options"}


UNKNOWN: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "of a Slurm job": (
        SLURM,
        {"req_nodes": "1", "req_precmd": "/site/spark.sh", "req_partition": "main"},
        ["req_nodes", "req_precmd"],
    ),
    "that is no request": (SLURM, {"condaenv": "base"}, ["condaenv"]),
    "on the hub's machine": ("jupyterhub.spawner.LocalProcessSpawner", {"req_memory": "2G"}, ["req_memory"]),
    "of another class": ("jupyterhub.spawner.SimpleLocalProcessSpawner", {"req_memory": "2G"}, ["req_memory"]),
}


@pytest.mark.parametrize(("spawner", "traits", "names"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_with_one_line_changed_a_hub_starts_with_names_that_nobody_has(
    tmp_path: Path, spawner: str, traits: dict[str, Any], names: list[str]
) -> None:
    """wrapspawner dropped them; `gpuspawner check` and the hub's log say that they have no effect."""
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(f"{HEAD}\nc.ProfilesSpawner.profiles = {[('One', 'one', spawner, traits)]!r}\n")
    site = load_site(path)
    of_site = site.spawner("ada")
    of_site.check()
    of_site.prepare(of_site.resolve({"profile": "one"}))
    said = [finding for finding in of_configuration(site) if ".".join(finding.where.split(".")[1:]) in names]

    assert [(finding.severity, finding.where) for finding in said] == [
        (Severity.WARNING, f"profile one: traits.{name}") for name in names
    ]
