"""Configurations like those of public sites: the result loads, and differs as it says, and in nothing else."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from batchspawner import SlurmSpawner
from traitlets.config import Config
from wrapspawner import ProfilesSpawner

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate import forms, result
from jupyterhub_gpuspawner.migrate.migration import migrate
from jupyterhub_gpuspawner.migrate.old_hub import System, read_old_hub
from jupyterhub_gpuspawner.migrate.result import Difference, Kind, settings_text
from jupyterhub_gpuspawner.migrate.template import sbatch_options, spelled
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.site.jobs import jobs_of
from jupyterhub_gpuspawner.slurm.sbatch_options import OPTIONS
from tests.check.sites import of_configuration
from tests.fixtures.batchspawners import rendered, spawner_of
from tests.migrate.conftest import Migrated, write_result

USER, HOME = "somebody", "/home/somebody"
MOSS_JOB = {
    "chdir": HOME,
    "comment": "jupyterhub-gpuspawner/hub/somebody/",
    "cpus-per-task": "8",
    "export": "ALL",
    "gres": "gpu:V100-SXM2-32GB:2",
    "job-name": "jupyterhub",
    "mem": "16384M",
    "no-requeue": "",
    "nodes": "1",
    "output": f"{HOME}/jupyterhub-%j.log",
    "partition": "gpu",
    "reservation": "today",
    "time": "1:00:00",
}


OTHER = {"other": ""}
"""A name that a template may have, of a class of the site's own."""


class SiteSlurmSpawner(SlurmSpawner):  # type: ignore[misc]
    """The class of the site's own that a configuration names."""


class ReadProfiles(ProfilesSpawner):  # type: ignore[misc]
    """The real wrapspawner, asked which child it would make."""

    def child_of(self, key: str) -> tuple[type[Any], dict[str, Any]]:
        """Class and settings of a profile's server."""
        self.select_profile(key)
        return self.child_class, self.child_config


def old_options(path: Path) -> dict[str, dict[str, str]]:
    """sbatch's options of each Slurm profile of an old hub, by its display name."""
    hub = read_old_hub(path)
    if hub.system is System.BATCHSPAWNER:
        return {"Notebook server": sbatch_options(rendered(spawner_of(SiteSlurmSpawner, hub.config), OTHER))}
    options = {}
    for item in hub.config.ProfilesSpawner.profiles:
        traits = item[-1]
        if len(item) == 4:  # a pair is for batchspawner, and wrapspawner does not know it
            if "SlurmSpawner" not in str(item[2]):
                continue
            _, traits = ReadProfiles(config=Config(), profiles=[item]).child_of(item[1])
        options[item[0]] = sbatch_options(rendered(spawner_of(SlurmSpawner, hub.config, **traits)))
    return options


def new_script(folder: Path, slug: str = "", **options: str) -> str:
    """The batch script of a profile of the new hub, or of its only one."""
    site = load_site(folder / "jupyterhub_config.py")
    site.config.GPUSlurmSpawner.update({"hub_name": "hub", "req_homedir": "/home/{username}"})
    (job,) = asyncio.run(jobs_of(site, {"profile": slug, **options} if slug else options, user=USER))
    return job.script


def new_options(folder: Path, slug: str, **options: str) -> dict[str, str]:
    """sbatch's options of a profile of the new hub."""
    return sbatch_options(new_script(folder, slug, **options))


STATED = {
    "cloud-image": {"template-mended", "extra-field"},
    "datacenter": {"template-mended"},
    "login-node": {"setting-ignored"},
}
"""What an admin of these sites reads in the end: of templates that are kept."""


def test_the_result_is_without_fault(migrated: Migrated) -> None:
    """It loads, every profile has a job, and no setting is without effect; only Slurm is not here to be asked."""
    findings = of_configuration(load_site(migrated.folder / "jupyterhub_config.py"))
    documents = (*migrated.migration.in_files, *migrated.migration.in_configuration)

    bad = [finding for finding in findings if finding.severity is not Severity.OK and finding.where != "Slurm"]
    assert {finding.code for finding in bad} == STATED.get(migrated.old.parent.name, set())
    assert all(finding.severity is Severity.WARNING for finding in bad)
    first = findings[-1].cluster  # of several, of which none is here
    slugs = {d["slug"] for d in documents if d.get("slurm", {}).get("cluster") in (None, first)}
    assert slugs <= {finding.where.split()[1] for finding in findings if finding.where.startswith("profile ")}


@pytest.mark.parametrize("migrated", ["comet", "isambard", "workshop", "wrapspawner"], indirect=True)
def test_jobs_differ_as_the_list_says_and_in_nothing_else(migrated: Migrated) -> None:
    """Every profile's options in batchspawner's own script, against those of ours."""
    documents = {profile["display_name"]: profile["slug"] for profile in migrated.migration.in_files}
    listed = [difference for difference in migrated.migration.differences if difference.where.startswith("--")]
    for name, was in old_options(migrated.old).items():
        slug = documents[name]
        now = new_options(migrated.folder, slug)
        real = {
            (f"--{option}", spelled(option, was.get(option)), spelled(option, now.get(option)))
            for option in {*was, *now}
            if was.get(option) != now.get(option)
        }

        assert real == {(e.where, e.was, e.now) for e in listed if not e.profiles or slug in e.profiles}, slug
    assert [difference for difference in listed if not difference.why or difference.todo] == []


COMMANDS = {
    "conda": "source /opt/conda/bin/activate jhub",
    "date": "date >> $HOME/starts",
    "hub": "module load python/3.9",
    "hub's end": "rm -rf /scratch/$USER",
    "its own": "module load python/3.11",
    "its end": "rm -rf /scratch/$USER/own",
    "purge": "module purge",
}
"""Shell lines of a site, by a word for each."""


def commands(script: str) -> list[str]:
    """The site's lines in a script, in the order in which they run, as words of :data:`COMMANDS`; and the server."""
    words = {line: word for word, line in COMMANDS.items()} | {"jupyterhub-singleuser": "server"}
    words |= {"gpuspawner_serve || status=$?": "server"}
    lines = [words[line] for line in script.split("\n") if line in words]
    return [word for at, word in enumerate(lines) if lines[at - 1 : at] != [word]]


ORDERS = {
    "the template's lines after": (["{{prologue}}", "conda", "{{cmd}}", "{{epilogue}}", "date"], {}),
    "before": (["purge", "{{prologue}}", "{{cmd}}", "date", "{{epilogue}}"], {}),
    "around": (["purge", "{{prologue}}", "conda", "{{cmd}}"], {}),
    "lines that never ran": (["purge", "conda", "{{cmd}}", "date"], {}),
    "a profile's own": (["{{prologue}}", "conda", "{{cmd}}", "{{epilogue}}"], {"req_prologue": "its own"}),
    "a profile's own, around": (
        ["purge", "{{prologue}}", "conda", "{{cmd}}", "date", "{{epilogue}}"],
        {"req_prologue": "its own", "req_epilogue": "its end"},
    ),
    "a profile's own that never ran": (["purge", "{{cmd}}", "date"], {"req_epilogue": "its end"}),
    "a profile without": (["purge", "{{prologue}}", "{{cmd}}"], {"req_prologue": ""}),
}


@pytest.mark.parametrize("of_hub", [True, False], ids=["with lines of the hub's", "without"])
@pytest.mark.parametrize(("template", "own"), ORDERS.values(), ids=ORDERS.keys())
def test_the_same_commands_run_in_the_same_order(
    tmp_path: Path, template: list[str], own: dict[str, str], of_hub: bool
) -> None:
    """batchspawner's own script and ours: the template's lines, those of hub and profile, and the server."""
    text = "\n".join(["#!/bin/bash", "#SBATCH --time=60", *(COMMANDS.get(word, word) for word in template)])
    lines = [f"c.SlurmSpawner.batch_script = {text!r}"]
    if of_hub:
        lines += [f"c.SlurmSpawner.req_{name} = {COMMANDS[word]!r}" for name, word in OF_HUB.items()]
    traits = {"req_memory": "4G", **{name: COMMANDS.get(word, "") for name, word in own.items()}}
    lines.append(f"c.ProfilesSpawner.profiles = [('One', 'one', 'batchspawner.SlurmSpawner', {traits!r})]")
    lines.append("c.JupyterHub.spawner_class = 'wrapspawner.ProfilesSpawner'")
    old = tmp_path / "old" / "jupyterhub_config.py"
    old.parent.mkdir()
    old.write_text("\n".join(lines))
    hub = read_old_hub(old)
    write_result(migrate(old), tmp_path)

    _, child = ReadProfiles(config=Config(), profiles=hub.config.ProfilesSpawner.profiles).child_of("one")
    assert commands(new_script(tmp_path, "one")) == commands(rendered(spawner_of(SlurmSpawner, hub.config, **child)))


OF_HUB = {"prologue": "hub", "epilogue": "hub's end"}
IN_OPTIONS = {
    "--gres=gpu:a100:1 --qos=jupyter": {"gpus": 1, "gpu_type": "a100", "qos": "jupyter"},
    "-A physics --gpus=2 --exclude=n1 --signal B:TERM@60": {
        "account": "physics",
        "gpus": 2,
        "extra": "--exclude=n1 --signal=B:TERM@60",
    },
    "--time=1:00:00 -C 'old|new' --mem 4G": {"time": "1:00:00", "constraint": "old|new", "memory": "4G"},
    "--exclusive --gres=lscratch:10": {"extra": "--exclusive\n--gres=lscratch:10"},
    "--nice=50 --switches=1": {"nice": 50, "extra": "--switches=1"},
    "--nice": {"extra": "--nice"},
    "--nice=-5 --qos=a,b": {"extra": "--nice=-5 --qos=a,b"},
    "--partition=gpu": {"extra": "--partition=gpu"},
}


@pytest.mark.parametrize("profile", [False, True], ids=["of the hub", "of a profile"])
@pytest.mark.parametrize(("text", "slurm"), IN_OPTIONS.items(), ids=IN_OPTIONS.keys())
def test_options_that_are_fields_become_fields(tmp_path: Path, text: str, slurm: dict[str, Any], profile: bool) -> None:
    """GPUs in ``req_options`` are shown by the form; what no field has, or what has another value, is passed on."""
    traits = {"req_partition": "long", "req_options": text}
    lines = [f"c.SlurmSpawner.{name} = {value!r}" for name, value in traits.items()]
    spawner = "batchspawner.SlurmSpawner"
    if profile:
        lines = [f"c.ProfilesSpawner.profiles = [('One', 'server', {spawner!r}, {traits!r})]"]
        spawner = "wrapspawner.ProfilesSpawner"
    old = tmp_path / "old.py"
    old.write_text("\n".join([f"c.JupyterHub.spawner_class = {spawner!r}", *lines]))

    (converted_profile,) = migrate(old).profiles
    values = {name: value for name, value in converted_profile.document["slurm"].items() if value is not None}
    assert values == {"partition": "long", **slurm}


@pytest.mark.parametrize(
    ("name", "value", "fields"),
    [
        ("req_memory", "4G", "slurm.memory"),
        ("req_gres", "gpu:a100:2", "slurm.gpus, slurm.gpu_type"),
        ("req_gres", "lscratch:10", "slurm.extra"),
    ],
)
def test_the_list_names_the_fields_that_a_request_has_become(
    tmp_path: Path, name: str, value: str, fields: str
) -> None:
    """A line of gres may be several of them."""
    old = tmp_path / "old.py"
    spawner = "c.JupyterHub.spawner_class = 'batchspawner.SlurmSpawner'"
    old.write_text(f"{spawner}\nc.SlurmSpawner.{name} = {value!r}\n{BY_TEMPLATE}\n")

    differences = migrate(old).differences
    moved = [difference.now for difference in differences if difference.where == f"c.SlurmSpawner.{name}"]
    assert moved == [f"profile server: {fields}"]


FIXED = {
    "by fields": "--partition=gpu --account=a --qos=q --constraint=c --cpus-per-task=3 --mem=4G --time=1:00:00 "
    "--reservation=r --nodes=2 --gres=gpu:a100:2 --nice=50",
    "by values that no field can have": "--nodes=1-1 --qos=a,b --cpus-per-task=0 --nice=-5",
    "by options without a field": "--exclude=n1 --licenses=matlab",
    "by options without a value": "--nice --exclusive",
}


@pytest.mark.parametrize("spawner", ["batchspawner.SlurmSpawner", "wrapspawner.ProfilesSpawner"])
@pytest.mark.parametrize("options", FIXED.values(), ids=FIXED.keys())
def test_a_job_has_the_options_that_the_template_fixes(tmp_path: Path, options: str, spawner: str) -> None:
    """Whatever hub and profile set, as batchspawner's own script has them; the list says of none that it differs."""
    traits = {"req_memory": "9G", "req_ngpus": "3", "req_gres": "gpu:k80:4"} if "gres" in options else {}
    old = tmp_path / "old" / "jupyterhub_config.py"
    old.parent.mkdir()
    old.write_text(f"""
c.JupyterHub.spawner_class = {spawner!r}
c.SlurmSpawner.batch_script = "#!/bin/bash\\n#SBATCH {options}\\n{{cmd}}\\n"
c.SlurmSpawner.req_runtime = "9:00:00"
c.ProfilesSpawner.profiles = [("Server", "server", "batchspawner.SlurmSpawner", {traits!r})]
""")
    migration = migrate(old)
    write_result(migration, tmp_path)
    was = sbatch_options(rendered(spawner_of(SlurmSpawner, read_old_hub(old).config, **traits), OTHER))
    now = new_options(tmp_path, "server")

    assert {name: now.get(name) for name in was} == was
    assert [difference for difference in migration.differences if difference.where.removeprefix("--") in was] == []


SINGLEUSER = ["batchspawner-singleuser", "jupyterhub-singleuser"]
DECISIONS = {
    "the command of all servers": (f"c.Spawner.cmd = {SINGLEUSER}", {}, ["c.Spawner.cmd"]),
    "the command of a profile": ("", {"cmd": SINGLEUSER}, []),
    "a host of its own": ("", {"req_host": "labhost"}, ["c.ProfilesSpawner.profiles[0]: req_host"]),
    "whichever of two clusters is free": (
        "c.SlurmSpawner.batch_query_cmd = 'squeue -M {cluster}'",
        {"req_cluster": "juniper,cedar"},
        ["req_cluster"],
    ),
    "another host": ("c.SlurmSpawner.req_host = 'h1'", {"req_host": "h2"}, ["c.ProfilesSpawner.profiles[0]: req_host"]),
    "the host of the hub": ("c.SlurmSpawner.req_host = 'h1'", {"req_host": "h1"}, []),
}


@pytest.mark.parametrize(("line", "traits", "decide"), DECISIONS.values(), ids=DECISIONS.keys())
def test_what_the_new_hub_cannot_do_is_decided(
    tmp_path: Path, line: str, traits: dict[str, Any], decide: list[str]
) -> None:
    """Another cluster for a profile, and batchspawner's program in a command that stays as it is."""
    traits = {"req_ngpus": "1", **traits}
    old = tmp_path / "old.py"
    profile = ("One", "one", "batchspawner.SlurmSpawner", traits)
    old.write_text(f"""
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.BatchSpawnerBase.exec_prefix = "sudo -E -u {{username}}"
{line}
c.ProfilesSpawner.profiles = [{profile!r}]
""")
    migration = migrate(old)
    assert [difference.where for difference in migration.differences if difference.kind is Kind.DECIDE] == decide
    assert migration.profiles[0].document.get("command", SINGLEUSER[1:]) == SINGLEUSER[1:]


NAMED = {"juniper": {"req_cluster": "juniper"}, "cedar": {"req_cluster": "cedar"}}
CLUSTERS: dict[str, tuple[str, list[str | None], dict[str, Any], list[str | None]]] = {
    "all the hub's": ("juniper", [None, None], {"req_cluster": "juniper"}, [None, None]),
    "all the same": ("", ["cedar", "cedar"], {"req_cluster": "cedar"}, [None, None]),
    "one of its own": ("juniper", ["cedar", None], {"clusters": NAMED}, ["cedar", None]),
    "two, and none of the hub's": (
        "",
        ["juniper", "cedar"],
        {"clusters": NAMED},
        [None, "cedar"],
    ),
    "one of the hub's slurm.conf": (
        "",
        [None, "cedar"],
        {"clusters": {"local": {}, "cedar": {"req_cluster": "cedar"}}},
        [None, "cedar"],
    ),
    "back to that of slurm.conf": (
        "juniper",
        [None, ""],
        {"clusters": {"juniper": {"req_cluster": "juniper"}, "local": {}}},
        [None, "local"],
    ),
}
BY_TEMPLATE = (
    "c.SlurmSpawner.batch_script = '#!/bin/bash\\n{% if cluster %}#SBATCH --clusters={{cluster}}\\n{% endif %}{{cmd}}'"
)
BY_COMMAND = "c.SlurmSpawner.batch_query_cmd = 'squeue -M {cluster} -h -j {job_id} -o \\'%T %B\\''"


@pytest.mark.parametrize("line", [BY_TEMPLATE, BY_COMMAND], ids=["in the template", "in a command"])
@pytest.mark.parametrize(("of_hub", "own", "settings", "slurm"), CLUSTERS.values(), ids=CLUSTERS.keys())
def test_profiles_keep_their_clusters(
    tmp_path: Path,
    line: str,
    of_hub: str,
    own: list[str | None],
    settings: dict[str, Any],
    slurm: list[str | None],
) -> None:
    """One setting where all have the same, else `clusters`; no job goes to another one than before."""
    profiles = [
        (slug, slug, "batchspawner.SlurmSpawner", {"req_ngpus": "1"} | ({} if name is None else {"req_cluster": name}))
        for slug, name in zip("ab", own, strict=True)
    ]
    old = tmp_path / "old.py"
    old.write_text(f"""
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
{line}
c.SlurmSpawner.req_cluster = {of_hub!r}
c.ProfilesSpawner.profiles = {profiles!r}
""")
    migration = migrate(old)

    assert {
        name: migration.settings[name] for name in ("clusters", "req_cluster") if name in migration.settings
    } == settings
    assert [profile.document["slurm"].get("cluster") for profile in migration.profiles] == slurm
    assert [difference for difference in migration.differences if difference.where == "--clusters"] == []


def test_the_cluster_of_a_hub_of_batchspawner_alone_is_a_setting(tmp_path: Path) -> None:
    """Also where the template has it; without the template and a command it had no effect."""
    old = tmp_path / "old.py"
    clusters = {}
    for name, line in {
        "constant": "c.SlurmSpawner.batch_script = '#!/bin/bash\\n#SBATCH -M cedar\\n{cmd}'",
        "variable": f"{BY_TEMPLATE}\nc.SlurmSpawner.req_cluster = 'cedar'",
        "in vain": "c.SlurmSpawner.req_cluster = 'cedar'",
    }.items():
        old.write_text(f"c.JupyterHub.spawner_class = 'batchspawner.SlurmSpawner'\n{line}\n")
        migration = migrate(old)
        clusters[name] = migration.settings.get("req_cluster"), migration.profiles[0].document["slurm"].get("cluster")

    assert clusters == {"constant": ("cedar", None), "variable": ("cedar", None), "in vain": (None, None)}


PREFIXES = {
    "as the gate admits": ("ssh login sudo -n -u {username}", "ssh login", ["exec_prefix", "query_prefix"]),
    "options": (
        "timeout 9 /usr/bin/ssh -p 2222 -o 'ConnectTimeout 5' hub@login sudo -n -u {username}",
        "timeout 9 /usr/bin/ssh -p 2222 -o 'ConnectTimeout 5' hub@login",
        ["exec_prefix", "query_prefix"],
    ),
    "a variable before sudo": (
        "ssh login SLURM_CONF=/etc/slurm.conf sudo -n -u {username}",
        "ssh login",
        ["exec_prefix", "exec_prefix", "query_prefix"],
    ),
    "an account of each user's": ("ssh {username}@login", None, ["exec_prefix", "query_prefix"]),
    "no destination": ("ssh -p 22", None, ["exec_prefix", "exec_prefix"]),
    "no ssh": ("sudo -u {username}", None, ["exec_prefix"]),
    "an account that is called ssh": ("sudo -u ssh", None, ["exec_prefix"]),
    "all variables are passed on": ("sudo -nE -u {username}", None, []),
    "all variables, by runuser": ("timeout 9 /usr/sbin/runuser -u {username} --", None, []),
    "an option that is not sudo's": ("sudo -u {username} as-user -E", None, ["exec_prefix"]),
}


@pytest.mark.parametrize(("prefix", "query_prefix", "decide"), PREFIXES.values(), ids=PREFIXES.keys())
def test_where_jobs_are_submitted_by_ssh_slurm_is_asked_by_the_same_ssh(
    tmp_path: Path, prefix: str, query_prefix: str | None, decide: list[str]
) -> None:
    """query_prefix is exec_prefix without what acts as a user, and each is in the list of what to decide."""
    old = tmp_path / "jupyterhub_config.py"
    old.write_text(f"""
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.exec_prefix = {prefix!r}
""")
    migration = migrate(old)
    names = [
        difference.where.rpartition(".")[2] for difference in migration.differences if difference.kind is Kind.DECIDE
    ]

    assert (migration.settings.get("query_prefix"), [name for name in names if "prefix" in name]) == (
        query_prefix,
        decide,
    )


@pytest.mark.parametrize("migrated", ["moss"], indirect=True)
def test_mosss_form_is_the_profiles_options(migrated: Migrated) -> None:
    """What a user chose in moss's form can be chosen, and becomes the same request."""
    chosen = {"cpus": "8", "gpus": "2", "memory": "16G", "time": "1", "reservation": "today"}

    assert new_options(migrated.folder, "gpu", **chosen) == MOSS_JOB


@pytest.mark.parametrize(
    ("slug", "chosen", "expected"),
    [
        ("default", {}, {"cpus-per-task": "2", "mem": "4096M", "time": "2:00:00"}),
        ("default", {"gpus": "gpu:1g.10gb:1", "time": "0.5"}, {"gres": "gpu:1g.10gb:1", "time": "0:30:00"}),
        ("terminal", {}, {"cpus-per-task": "1", "mem": "4096M", "oversubscribe": "", "time": "2:00:00"}),
        ("training", {}, {"cpus-per-task": "8", "mem": "32768M", "gres": "gpu:a100:1", "time": "4:00:00"}),
    ],
)
@pytest.mark.parametrize("migrated", ["presets"], indirect=True)
def test_presets_of_a_form_are_profiles(
    migrated: Migrated, slug: str, chosen: dict[str, str], expected: dict[str, str]
) -> None:
    """SlurmFormSpawner's profiles keep their values, and what is not locked can be chosen."""
    options = new_options(migrated.folder, slug, **chosen)

    assert options | expected == options
    assert (options["partition"], options["account"]) == ("teaching", "course")


def test_every_setting_is_in_the_list(migrated: Migrated) -> None:
    """Nothing is dropped silently."""
    listing = " ".join(difference.where for difference in migrated.migration.differences)
    settings = [str(setting) for setting in read_old_hub(migrated.old).all_settings()]

    assert [setting for setting in settings if setting not in listing] == []


def test_nothing_of_the_old_packages_is_left(migrated: Migrated) -> None:
    """The result needs none of them, and sets nothing of theirs."""
    statements = [line for line in settings_text(migrated.migration).splitlines() if not line.startswith("#")]
    old = ("import batchspawner", "wrapspawner", "moss", "slurmform", "c.Slurm")

    assert [line for line in statements if any(name in line for name in old)] == []


def test_a_function_is_to_be_set_again(tmp_path: Path) -> None:
    """It cannot be written down."""
    old = tmp_path / "jupyterhub_config.py"
    old.write_text("""
def ready(spawner):
    pass

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.progress_ready_hook = ready
""")
    migration = migrate(old)
    decide = {row.where: row.todo for row in migration.differences if row.kind is Kind.DECIDE}

    assert decide["c.SlurmSpawner.progress_ready_hook"] == "Set c.GPUSlurmSpawner.progress_ready_hook to it."
    assert "progress_ready_hook" not in migration.settings


CODE = {
    "options_form": ("form_stays", "form_stays"),
    "options_from_form": ("form_unseen", "form_unseen"),
    "pre_spawn_hook": ("hook_before", "hook_before"),
    "auth_state_hook": ("hook_before", "hook_before"),
    "apply_user_options": ("hook_before", "hook_before"),
    "post_stop_hook": ("hook_as_it_is", "hook_moved"),
    "group_overrides": ("hook_as_it_is", "moved"),
}


@pytest.mark.parametrize("section", ["Spawner", "SlurmSpawner", "BatchSpawnerBase"])
@pytest.mark.parametrize("name", CODE)
def test_each_form_and_hook_has_one_row(name: str, section: str, tmp_path: Path) -> None:
    """Wherever it is set."""
    value = "{'all': {'groups': ['a'], 'spawner_override': {}}}" if name == "group_overrides" else "lambda *_: ''"
    old = tmp_path / "jupyterhub_config.py"
    old.write_text(f"c.JupyterHub.spawner_class = 'batchspawner.SlurmSpawner'\nc.{section}.{name} = {value}\n")
    migration = migrate(old)
    rows = [row for row in migration.differences if row.where.endswith(f".{name}")]

    assert [(row.where, row.code) for row in rows] == [(f"c.{section}.{name}", CODE[name][section != "Spawner"])]
    assert all(row.todo for row in rows if row.kind is Kind.DECIDE)
    assert ("Write it as c.GPUSlurmSpawner." in rows[0].todo) == (
        section != "Spawner" and rows[0].code in ("hook_before", "hook_moved")
    )


@pytest.mark.parametrize(
    ("line", "where", "was", "now", "settings"),
    [
        (
            "c.SlurmSpawner.start_timeout = 100",
            "c.SlurmSpawner.start_timeout",
            "100",
            "c.GPUSlurmSpawner.start_timeout",
            {"start_timeout": 100},
        ),
        ("c.Spawner.start_timeout = 600", "c.Spawner.start_timeout", "600", "as it is", {}),
        ("", "start_timeout", "(the default)", "as it is", {}),
    ],
    ids=["of the Slurm spawner", "of all spawners", "the default"],
)
def test_the_time_limit_of_a_start_no_longer_includes_the_queue(
    tmp_path: Path, line: str, where: str, was: str, now: str, settings: dict[str, int]
) -> None:
    """The value stays, and the list says which other setting ends a wait in the queue."""
    old = tmp_path / "jupyterhub_config.py"
    old.write_text(f"c.JupyterHub.spawner_class = 'batchspawner.SlurmSpawner'\n{line}\n")
    migration = migrate(old)

    assert [row for row in migration.differences if "start_timeout" in row.where] == [
        Difference(
            "start_timeout",
            Kind.CHANGED,
            where,
            was,
            now,
            "it counts from Slurm's allocation on; before, it included the time in the queue, which has no limit now",
            "Set c.GPUSlurmSpawner.queue_timeout if starts that wait in the queue shall be given up.",
        )
    ]
    assert {name: value for name, value in migration.settings.items() if name == "start_timeout"} == settings


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    """The configuration is executed as the hub does, where its packages are."""
    old = tmp_path / "jupyterhub_config.py"
    old.write_text("import a_package_of_the_site\n")

    with pytest.raises(ConfigError, match=r"a_package_of_the_site.*Run the command where the hub's packages are"):
        migrate(old)


def test_each_row_of_the_list_is_used() -> None:
    """Its code is in the code, or is made of a name there."""
    source = "".join(path.read_text() for path in Path(result.__file__).parent.glob("*.py"))
    known = Path(forms.__file__).with_name("forms.yaml").read_text()
    unused = [
        code
        for code in result.rows()
        if f'"{code}"' not in source and not re.search(rf"\b{code.removeprefix('moss_form_')}\b", known)
    ]

    assert [code for code in unused if not code.startswith("--")] == []
    assert {code.removeprefix("--") for code in unused} <= OPTIONS | {"workdir"}
