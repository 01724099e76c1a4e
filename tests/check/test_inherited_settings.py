"""batchspawner's and wrapspawner's settings: each does what the table says; those without effect are listed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import batchspawner
import pytest
from batchspawner.batchspawner import BatchSpawnerRegexStates
from click.testing import CliRunner
from jupyterhub.spawner import Spawner
from traitlets.config import Config
from wrapspawner import ProfilesSpawner, WrapSpawner

from docs.reference_pages import batchspawner as reference
from jupyterhub_gpuspawner.check.inherited_settings import (
    BATCHSPAWNER,
    WRAPSPAWNER,
    Effect,
    ignored_by,
    ignored_settings,
)
from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site

SLURM_CLASSES = (
    batchspawner.BatchSpawnerBase,
    BatchSpawnerRegexStates,
    batchspawner.SlurmSpawner,
    batchspawner.MultiSlurmSpawner,
)


def settings_of(*classes: type[Spawner]) -> set[str]:
    """Return the traits that these classes add to JupyterHub's spawner or redeclare, and every ``req_*``."""
    stock = Spawner.class_traits()
    names = {
        name
        for cls in classes
        for name, trait in cls.class_traits().items()
        if stock.get(name) is not trait and (trait.metadata.get("config") or name.startswith("req_"))
    }
    return names - {"options_form"}  # JupyterHub's own


def test_the_tables_have_every_setting_of_batchspawner_and_wrapspawner() -> None:
    """By the traits of the installed versions, so that a new setting is noticed."""
    assert {setting.name for setting in BATCHSPAWNER} == settings_of(*SLURM_CLASSES)
    assert {setting.name for setting in WRAPSPAWNER} == settings_of(WrapSpawner, ProfilesSpawner)


def test_the_reference_has_a_line_for_each_setting() -> None:
    """Adjacent settings with the same remark share one."""
    page = reference.page()
    assert [s.name for s in (*BATCHSPAWNER, *WRAPSPAWNER) if f"`{s.name}`" not in page] == []


VALUES = {
    "req_nprocs": "3",
    "req_memory": "3G",
    "req_runtime": "0:33:00",
    "req_ngpus": "3",
    "req_gres": "gpu:3",
    "req_options": "--mail-type=END",
    "req_homedir": "/home/other",
    "batch_script": "#!/bin/bash\n{cmd}\n",
    "start_timeout": 33,
    "startup_poll_interval": 3.0,
    "daemon_resolver": {"a": "b"},
    "batch_submit_cmd": "runuser -u other sbatch -p gpu",
    "exec_prefix": "runuser -u {username} --",
    "ip": "10.0.0.1",
}
"""One for each setting that is not any text."""


def spawner_of(template: str = "", **values: Any) -> GPUSlurmSpawner:
    """A server's spawner under these settings of the site."""
    config = Config({"GPUSlurmSpawner": {"batch_script": template, **values}} if template else {"SlurmSpawner": values})
    spawner: GPUSlurmSpawner = Site(config, GPUSlurmSpawner).spawner("ada")
    return spawner


async def effect_of(template: str = "", **values: Any) -> tuple[object, ...]:
    """Return everything that a start does with its settings."""
    spawner = spawner_of(template, **values)
    account = SOMEBODY if not spawner.req_homedir else await spawner.account()
    environment = {**spawner.job_environment(account), "JUPYTERHUB_API_TOKEN": ""}
    cluster = spawner.connection().client.installation.cluster
    return spawner.batch_job(account).script, spawner.as_user(), spawner.start_timeout, environment, cluster


@pytest.mark.parametrize("setting", BATCHSPAWNER, ids=lambda setting: setting.name)
async def test_a_setting_does_what_the_table_says(setting: Any) -> None:
    """It changes what is started and is not listed; or it changes nothing and is listed."""
    values: dict[str, Any] = {setting.name: VALUES.get(setting.name, "word")}
    template = f"#!/bin/bash\n# {{{setting.name.removeprefix('req_')}}}\n{{cmd}}\n"
    changes = await effect_of(**values) != await effect_of()
    named = [ignored_setting.where for ignored_setting in ignored_by(spawner_of(**values))]

    has_effect = setting.effect is Effect.KEPT
    assert (changes, named) == (has_effect, [] if has_effect else [f"c.SlurmSpawner.{setting.name}"])
    if setting.effect is Effect.TEMPLATE:
        assert "word" in spawner_of(template, **values).batch_job(SOMEBODY).script
        assert ignored_by(spawner_of(template, **values)) == ()
        (unused,) = ignored_by(spawner_of("#!/bin/bash\n{cmd}\n", **values))
        assert "batch_script does not name {" in unused.text


@pytest.mark.parametrize("setting", [*BATCHSPAWNER, *WRAPSPAWNER], ids=lambda setting: setting.name)
def test_what_has_no_effect_says_what_to_do_instead(setting: Any) -> None:
    """In a sentence that names existing settings only."""
    assert bool(setting.instead) is (setting.effect is not Effect.KEPT)
    assert setting.instead == "" or re.fullmatch(r"[A-Z].*\.", setting.instead)
    for section, name in re.findall(r"c\.(\w+)\.(\w+)", setting.instead):
        cls = {"Spawner": Spawner, "GPUSlurmSpawner": GPUSlurmSpawner, "GPUProfilesSpawner": GPUProfilesSpawner}[
            section
        ]
        assert name in cls.class_trait_names(config=True)


SECTIONS = ("GPUSlurmSpawner", "SlurmSpawner", "BatchSpawnerRegexStates", "BatchSpawnerBase", "Spawner")
WRAPPERS = ("GPUProfilesSpawner", "ProfilesSpawner", "WrapSpawner")
QUEUE = "has no effect without a batch_script that names it. Set c.GPUSlurmSpawner.req_partition."
ELSEWHERE = "has no effect: no Slurm server reads this class. Write c.GPUSlurmSpawner.{}."


def without_effect(sections: dict[str, dict[str, Any]], *profiles: Any, template: str = "") -> list[str]:
    """Return the settings without effect in the configuration of a hub with profiles."""
    settings = ignored_settings(
        Config(sections),
        GPUProfilesSpawner,
        batch_script=template,
        profiles=parse_profiles(list(profiles)),
    )
    return list(map(str, settings))


@pytest.mark.parametrize("section", [*SECTIONS, *WRAPPERS, "MultiSlurmSpawner"])
def test_a_setting_is_named_under_whichever_class_it_stands(section: str) -> None:
    """As the admin wrote it; subclasses inherit the settings of their base classes."""
    assert without_effect({section: {"req_queue": "gpu"}}) == [f"c.{section}.req_queue {QUEUE}"]


@pytest.mark.parametrize("section", [*SECTIONS[:-1], *WRAPPERS])
def test_a_setting_of_jobs_applies_under_each_class_of_the_hubs_spawner(section: str) -> None:
    """Whichever one an admin has in their configuration."""
    spawner = GPUProfilesSpawner(config=Config({section: {"req_partition": "gpu"}}))

    assert (spawner.req_partition, without_effect({section: {"req_partition": "gpu"}})) == ("gpu", [])


@pytest.mark.parametrize("section", ["MultiSlurmSpawner", "OurSlurmSpawner"])
@pytest.mark.parametrize("name", ["req_partition", "batch_script", "exec_prefix", "port_range"])
def test_a_slurm_servers_setting_under_a_class_that_starts_none_is_named(section: str, name: str) -> None:
    """Nothing of this hub reads it."""
    assert without_effect({section: {name: "x"}}) == [f"c.{section}.{name} {ELSEWHERE.format(name)}"]


SILENT: dict[str, dict[str, dict[str, Any]]] = {
    "what every server has": {"ProfilesSpawner": {"start_timeout": 60, "ip": "0.0.0.0"}},
    "profiles": {"ProfilesSpawner": {"profiles": [("A", {})]}},
    "what asks for nothing": {"SlurmSpawner": {"req_srun": "", "req_queue": ""}, "WrapSpawner": {"child_config": {}}},
    "another part of the hub": {"JupyterHub": {"req_queue": "x"}, "LocalProcessSpawner": {"req_queue": "x"}},
    "ours": {"GPUSlurmSpawner": {"req_nnodes": "2", "req_constraint": "fast", "slurm_timeout": 3}},
}


@pytest.mark.parametrize("sections", SILENT.values(), ids=SILENT.keys())
def test_what_has_an_effect_is_not_named(sections: dict[str, dict[str, Any]]) -> None:
    """Nor are empty values, and settings of other packages."""
    assert without_effect(sections) == []


def test_a_profiles_own_settings_are_named_with_the_profile() -> None:
    """Also those of a tuple; the profile's own template counts."""
    traits = {"req_queue": "gpu", "batch_query_cmd": "qstat", "req_partition": "gpu", "req_epilogue": "date"}
    template = {"req_queue": "gpu", "batch_script": "#SBATCH --partition={queue}\n{cmd}"}
    lines = without_effect(
        {},
        ("A", "a", "batchspawner.SlurmSpawner", traits),
        {"display_name": "B", "traits": template},
        ("C", "c", "dockerspawner.DockerSpawner", {"req_queue": "x"}),
    )

    assert lines == [
        "profile a: traits.batch_query_cmd has no effect. The commands are fixed; set c.GPUSlurmSpawner.slurm_bin_dir "
        "to the folder of another Slurm's commands.",
        f"profile a: traits.req_queue {QUEUE}",
    ]


def test_what_a_template_does_not_pass_on_is_named() -> None:
    """A profile's request, a choice's, and the site's; what the template names, or gets added, has an effect."""
    template = "#!/bin/bash\n#SBATCH --time={runtime}\n{cmd}\n"
    request = {"time": "1:00:00", "memory": "8G", "account": "a", "exclusive": True, "extra": ["--mail-type=END"]}
    cores = {"cores": {"range": {"min": 1, "max": 4, "sets": "slurm.cpus"}}}
    profile = {"display_name": "A", "slug": "a", "slurm": request, "profile_options": cores}
    site = {"SlurmSpawner": {"req_options": "--mail-type=END", "req_runtime": "8:00:00", "req_prologue": "date"}}

    assert without_effect(site, profile, template=template) == [
        "c.SlurmSpawner.req_options has no effect: batch_script does not name {options}.",
        "c.SlurmSpawner.req_prologue has no effect: batch_script does not name {prologue}.",
        "profile a: slurm.cpus has no effect: batch_script does not name {nprocs}.",
        "profile a: slurm.exclusive has no effect: batch_script does not contain --exclusive.",
        "profile a: slurm.extra has no effect: batch_script does not name {options}.",
        "profile a: slurm.memory has no effect: batch_script does not name {memory}.",
    ]
    assert without_effect({}, profile) == []


def test_a_name_in_a_comment_of_a_template_is_none() -> None:
    """The template's language decides what is a variable, as when it is rendered."""
    template = "#!/bin/bash\n{# {prologue} #}\necho ${prologue}\n{{ cmd }}\n"
    assert without_effect({"SlurmSpawner": {"req_prologue": "date"}}, template=template) == [
        "c.SlurmSpawner.req_prologue has no effect: batch_script does not name {prologue}.",
    ]


def test_a_home_that_sbatch_cannot_take_is_refused_in_a_sentence() -> None:
    """It is the account's, which no setting has checked."""
    with pytest.raises(ConfigError, match=r"the account ada: --output: .* contains a quote or a backslash") as refused:
        spawner_of().batch_job(replace(SOMEBODY, name="ada", home='/home/"ada"'))
    assert refused.value.for_user == "The hub cannot start this server: it is not set up correctly."


@pytest.mark.parametrize("name", ["options_form", "options_from_form"])
@pytest.mark.parametrize("section", SECTIONS)
def test_a_form_of_another_spawner_is_named_where_there_are_profiles(section: str, name: str) -> None:
    """With the spawner that keeps it; a form for profiles is one, and without profiles any form is."""
    config = Config({section: {name: str}})
    (text,) = without_effect({section: {name: str}})

    assert text.startswith(f"c.{section}.{name} is of a form for all spawners")
    assert "spawner_class = 'gpu-slurm'" in text
    assert without_effect({"GPUProfilesSpawner": {name: str}}) == []
    assert without_effect({section: {"options_form": ""}}) == []
    assert ignored_settings(config, GPUSlurmSpawner) == ()


def test_a_folder_of_profiles_that_is_empty_yet_keeps_no_hub_from_starting(tmp_path: Path) -> None:
    """Settings without effect are found all the same."""
    config = Config({"GPUProfilesSpawner": {"profiles_dir": str(tmp_path)}, "SlurmSpawner": {"req_queue": "x"}})
    spawner = Site(config, GPUProfilesSpawner).spawner("ada")

    assert list(map(str, ignored_by(spawner))) == [f"c.SlurmSpawner.req_queue {QUEUE}"]


SITE = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.Authenticator.allow_all = True
c.GPUSlurmSpawner.slurm_bin_dir = "/no/such/folder"
c.SlurmSpawner.req_queue = "gpu"
c.ProfilesSpawner.child_config = {"req_queue": "gpu"}
c.ProfilesSpawner.profiles = [("GPU", "gpu", "batchspawner.SlurmSpawner", {"state_pending_re": "x"})]
"""


def test_check_warns_of_settings_without_effect(tmp_path: Path) -> None:
    """One line each; the exit code stays that of the missing Slurm."""
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(f"c.JupyterHub.cleanup_servers = False\n{SITE}")
    checked = CliRunner().invoke(main, ["check", "--config", str(config)])
    warned = [line.partition(": ")[0] for line in checked.stdout.splitlines() if line.startswith("warn ")]

    assert checked.exit_code == 3
    assert warned == ["warn  c.ProfilesSpawner.child_config", "warn  c.SlurmSpawner.req_queue", "warn  profile gpu"]
    assert f"warn  c.SlurmSpawner.req_queue: {QUEUE} [setting-ignored]\n" in checked.stdout
