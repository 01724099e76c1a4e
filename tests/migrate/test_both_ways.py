"""Configurations of batchspawner's hubs, by one changed line and by ``migrate``: the job that batchspawner submits.

Each start goes as far as its submission, with both, and both scripts are run. What differs is written down here, as a
line for each option of sbatch, for who runs it, and for what the script calls and says.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tornado.web import HTTPError

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.migrate.migration import migrate
from jupyterhub_gpuspawner.migrate.result import Kind
from jupyterhub_gpuspawner.migrate.template import sbatch_options
from jupyterhub_gpuspawner.site.configuration import load_site
from tests.check.sites import of_configuration
from tests.fixtures.both_ways import USER, Choice, differences, new_job, old_job
from tests.fixtures.commands import Call
from tests.migrate.conftest import SITES, put_ssh, written_in_place

KINDS = SITES.parent / "kinds"
OF_ALL = """
c.Authenticator.allow_all = True
c.GPUSlurmSpawner.hub_name = "hub"
c.GPUSlurmSpawner.req_homedir = "/home/{username}"
"""
Rows = frozenset[str]


def rows(*lines: str) -> Rows:
    """Differences."""
    return frozenset(lines)


def named(was: str) -> Rows:
    """Jobs are named alike, where no template is kept."""
    return rows(f"--job-name: {was} -> jupyterhub")


def logged(was: str) -> Rows:
    """Logs are, too."""
    return rows(f"--output: {was} -> ~/jupyterhub-%j.log")


NONE = rows()
PREFIX = rows("run by: sudo -E -u ada sbatch -> sudo -n -E -u ada sbatch")
"""The default, by which sudo asks for no password."""
FOUND = rows("--comment: (none) -> jupyterhub-gpuspawner/hub/ada/")
NODE = rows("--nodes: (none) -> 1")
CHDIR = rows("--chdir: (none) -> ~")
EXPORT = rows("--export: (none) -> ALL")
NAMES = rows("--export: (names) -> ALL")
REQUEUE = rows("--no-requeue: (none) -> ")
KEPT = FOUND | NODE | CHDIR | EXPORT
"""A template that is kept, and has none of these."""
APART = FOUND | NODE | REQUEUE | EXPORT | CHDIR | named("(none)") | logged("(none)")
"""One that was taken apart, and had none of these."""
THEIRS = (
    rows("--get-user-env: L -> (none)", "did - srun", "said - jupyterhub-singleuser ended gracefully")
    | (FOUND | NODE | REQUEUE | NAMES)
    | (named("spawner-jupyterhub") | logged("~/jupyterhub_slurmspawner_%j.log"))
)
"""batchspawner's own, in whose place there is none."""
SRUN = rows("did - srun")
STARTS = rows("did + server jupyterhub-singleuser", "did +   PATH=/usr/bin:/bin", "did +   in ~")
"""A server, where batchspawner started none."""


@dataclass(frozen=True)
class Case:
    """What is not as with batchspawner, by each way."""

    one_line: Rows | str
    """Or how its first start is refused."""
    migrated: Rows | str
    choices: Mapping[str, Choice] = field(default_factory=lambda: {"server": Choice()})
    but: Mapping[str, tuple[Rows, Rows]] = field(default_factory=dict)
    """What differs in one choice beside that."""
    decide: tuple[str, ...] = ()
    """Rows of the migration under "To decide", without that of hubs whose servers have no GPUs."""
    found: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """What the check says of each, without Slurm."""
    also: str = ""
    """A line that the check names, beside the one that was changed."""


def keys(*profiles: str) -> dict[str, Choice]:
    """wrapspawner's."""
    return {key: Choice(key) for key in profiles}


COMMANDS = ("warning c.SlurmSpawner.batch_cancel_cmd", "warning c.SlurmSpawner.batch_query_cmd")
CASES: dict[str, Case] = {
    "braces_of_the_shell": Case(
        "{cmd} is no variable. Write $HOME without braces",
        PREFIX
        | APART
        | STARTS
        | rows("--partition: {partition} -> cpu", "said - /job.sh: line N: {cmd}: command not found")
        | rows("status: 127 -> 0"),
        decide=("template_refused", "unknown_variables"),
        found=(("error c.SlurmSpawner.batch_script", "warning c.SlurmSpawner.req_partition"), ()),
    ),
    "class_of_another_name": Case(PREFIX | THEIRS, PREFIX | THEIRS, keys("small"), found=((), ("warning HPCSpawner",))),
    "class_with_defaults": Case(
        PREFIX | THEIRS,
        PREFIX | THEIRS,
        keys("g", "c"),
        {"g": (rows("--time: (none) -> 4:00:00"), rows("--time: (none) -> 4:00:00"))},
        found=((), ("warning GpuSlurmSpawner",)),
    ),
    "cluster_of_a_profile": Case(
        PREFIX | THEIRS | rows("--clusters: (none) -> teach"),
        PREFIX | THEIRS | rows("--clusters: (none) -> teach"),
        keys("t"),
        found=(("warning c.SlurmSpawner.batch_query_cmd", "warning profile t"), ()),
        also="c.GPUSlurmSpawner.clusters = {'teach': {'req_cluster': 'teach'}}",
    ),
    "cmd_in_single_quotes": Case(PREFIX | KEPT, PREFIX | KEPT, keys("cpu")),
    "cmd_of_several_lines": Case(
        "The hub cannot start this server",
        (PREFIX | THEIRS) - rows("said - jupyterhub-singleuser ended gracefully")
        | rows("did + server /site/bin/python -E -s /site/bin/jupyterhub-singleuser")
        | rows("did - server unset XDG_RUNTIME_DIR", "status: 2 -> 0"),
        keys("a"),
        found=(("refused: c.ProfilesSpawner.profiles[0].command",), ()),
    ),
    "form_of_the_class": Case(
        PREFIX | THEIRS, PREFIX | THEIRS, {"gpu": Choice(form={"partition": ["gpu"]}), "program": Choice()}
    ),
    "hook_and_form": Case(
        PREFIX | THEIRS, PREFIX | THEIRS, {"gpu": Choice(form={"profile": ["gpu"]}), "program": Choice()}
    ),
    "lines_of_options": Case(
        PREFIX | KEPT,
        PREFIX | APART - named("(none)") | named("nb"),
        keys("a"),
        found=(("warning profile a",), ()),
    ),
    "names_that_nobody_has": Case(
        PREFIX | THEIRS, PREFIX | THEIRS, keys("one", "other"), found=(("warning profile one",), ())
    ),
    "requests_of_all_spawners": Case(PREFIX | KEPT, PREFIX | APART - named("(none)") | named("nb") | SRUN),
    "script_of_the_class": Case(KEPT - EXPORT, APART - EXPORT | NAMES, found=((), ("warning MySpawner",))),
    "sudo_in_the_submit_command": Case(THEIRS, THEIRS, found=(COMMANDS, ())),
    "template_of_a_profile": Case(
        PREFIX | KEPT - EXPORT,
        PREFIX | APART - EXPORT - named("(none)") | NAMES | named("nb") | rows("--ntasks: 1 -> (none)"),
        keys("cpu"),
    ),
    "template_without_cmd": Case(
        "the template has no {cmd} outside of its comments",
        PREFIX | APART | SRUN | rows("did - source /nfs/env/bin/activate"),
        decide=("template_refused",),
        found=(("error c.SlurmSpawner.batch_script",), ()),
    ),
    "time_zero": Case(PREFIX | THEIRS, PREFIX | THEIRS),
    "trap_at_the_end": Case(PREFIX | KEPT, PREFIX | APART, keys("cpu")),
    "unit_in_the_template": Case(PREFIX | KEPT, PREFIX | KEPT),
    "variable_of_the_class": Case(PREFIX | KEPT, PREFIX | KEPT, found=((), ("warning SiteSpawner",))),
    "wrapper_with_child_config": Case(
        "The hub cannot start this server",
        PREFIX | THEIRS,
        decide=("own_class", "wrapper_setting"),
        found=(("refused: There is no profile to offer.",), ()),
    ),
    # Hubs of whole sites
    "cloud-image": Case(
        FOUND | NODE,
        FOUND | NODE,
        keys("small", "large", "gpu"),
        found=(
            (
                *("warning c.BatchSpawnerBase.batch_cancel_cmd", "warning c.BatchSpawnerBase.batch_query_cmd"),
                "warning c.BatchSpawnerBase.start_timeout",
                *(
                    "warning c.SlurmSpawner.batch_script",
                    *(f"warning profile {key}" for key in ("gpu", "large", "small")),
                ),
            ),
            ("warning c.GPUSlurmSpawner.batch_script", "warning profile large"),
        ),
    ),
    "conda-profiles": Case(
        THEIRS,
        THEIRS,
        keys("base", "scanpy", "own"),
        {"own": (rows("--qos: (none) -> short", "did +   GROUP=bio"),) * 2},
        found=(("warning c.SlurmSpawner.req_keepvars_extra", "warning profile own"), ()),
    ),
    "containers": Case(
        FOUND | NODE,
        FOUND | NODE,
        keys("base", "torch", "r"),
        {"base": (EXPORT, EXPORT), "torch": (EXPORT, EXPORT), "r": (THEIRS - SRUN, THEIRS - SRUN)},
        found=((), ("warning ApptainerSpawner",)),
    ),
    "datacenter": Case(
        FOUND | NODE,
        FOUND | NODE,
        {
            "by a program": Choice(),
            **{
                f"{size}-{app}": Choice(form={"size": [size], "account": ["phys"], "app": [app]})
                for size in ("small", "large", "gpu")
                for app in ("lab", "tree")
            },
        },
        found=(("warning c.SlurmSpawner.batch_script",), ("warning c.GPUSlurmSpawner.batch_script",)),
    ),
    "ldap-groups": Case(
        FOUND | NODE,
        FOUND | NODE | NAMES | REQUEUE | named("faculty") | logged("(none)"),
        {
            "nobody": Choice(),
            "students": Choice(groups=("students",)),
            "staff": Choice(groups=("vision", "staff"), auth_state={"project": "cv", "department": "d"}),
        },
        {name: (rows("--account:  -> (none)"),) * 2 for name in ("nobody", "students")},
        decide=("hook_before", "hook_before"),
        found=(("warning c.SlurmSpawner.batch_script",), ()),
    ),
    "login-node": Case(
        FOUND | CHDIR,
        FOUND | CHDIR,
        decide=("prefix_by_ssh", "query_prefix"),
        found=(
            (
                "error exec_prefix",  # a hub without Slurm sets wrapper_dir
                *("warning CentreSpawner.req_runtime", "warning c.CentreSpawner.batch_query_cmd"),
                "warning c.CentreSpawner.state_exechost_exp",
            ),
            ("warning CentreSpawner", "warning profile server"),
        ),
    ),
    "school": Case(
        FOUND | NODE | CHDIR | EXPORT | rows("--workdir: ~ -> (none)"),
        KEPT | REQUEUE | named("school") | logged("~/school-%j.log") | rows("--workdir: ~ -> (none)"),
        keys("lectures", "exercises", "projects"),
        {"lectures": (rows("--gres:  -> (none)"),) * 2},
        found=(("warning c.SlurmSpawner.batch_script", "warning c.SlurmSpawner.start_timeout"), ()),
    ),
    "two-clusters": Case(
        FOUND | NODE | EXPORT,
        FOUND | NODE | EXPORT | REQUEUE | named("(none)") | logged("/dev/null"),
        keys("smp", "high-mem", "a100"),
        decide=("own_method",),
        found=(
            ("warning ClusterSpawner.parse_job_id", *COMMANDS, "warning c.SlurmSpawner.state_exechost_exp"),
            ("warning ClusterSpawner",),
        ),
        also="c.GPUSlurmSpawner.clusters = {'smp': {'req_cluster': 'smp'}, 'gpu': {'req_cluster': 'gpu'}}",
    ),
}
WAYS = ("one line", "migrated")


def configuration(name: str) -> Path:
    """Of a kind or of a site."""
    kind = KINDS / f"{name}.py"
    return kind if kind.exists() else SITES / name / "jupyterhub_config.py"


def with_one_line_changed(path: Path, folder: Path, also: str = "") -> Path:
    """The spawner's class; of a hub with a class of its own that from which it is derived."""
    text = path.read_text("utf-8")
    named_as = r"(?m)^(c\.JupyterHub\.spawner_class = ).*"
    if re.search(r"(?m)^class \w+\(SlurmSpawner\)", text) and "ProfilesSpawner" not in text:
        line, ours = (
            "from batchspawner import SlurmSpawner",
            "from jupyterhub_gpuspawner import GPUSlurmSpawner as SlurmSpawner",
        )
        new, count = re.subn(f"(?m)^{line}$", ours, text)
    else:
        spawner = "gpu-profiles" if "wrapspawner" in text else "gpu-slurm"
        new, count = re.subn(named_as, rf'\1"{spawner}"', text)
    assert count == 1
    changed = folder / "jupyterhub_config.py"
    changed.write_text(f"{new}\n{also}\n{OF_ALL}", "utf-8")
    return changed


def changed(name: str, way: str, folder: Path) -> Path:
    """The configuration of the new hub."""
    if way == "one line":
        return with_one_line_changed(configuration(name), folder, CASES[name].also)
    new = written_in_place(migrate(configuration(name)), configuration(name), folder)
    new.write_text(new.read_text("utf-8") + OF_ALL, "utf-8")
    return new


def has_form(case: Case) -> bool:
    """Whether the hub has one of its own, and no profiles then."""
    return any(choice.form for choice in case.choices.values())


def of_the_way(case: Case, way: str, choice: Choice) -> Choice:
    """A choice as the hub offers it: what was one job is a profile when it is migrated, but in a hub with a form."""
    plain = way == "one line" or choice.profile or has_form(case)
    return choice if plain else replace(choice, profile="server")


def test_there_is_a_case_of_each() -> None:
    """And the sites of these shapes."""
    kinds = {path.stem for path in KINDS.glob("*.py")}
    assert kinds <= CASES.keys()
    assert {path.name for path in SITES.iterdir()} >= CASES.keys() - kinds


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_the_job_is_batchspawners(name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options, who submits it, and what its script does; but for what is written down."""
    case = CASES[name]
    at = WAYS.index(way)
    expected = (case.one_line, case.migrated)[at]
    (tmp_path / "new").mkdir()
    config = changed(name, way, tmp_path / "new")
    for key, choice in case.choices.items():
        ours = of_the_way(case, way, choice)
        old, new = (tmp_path / key / part for part in ("old", "new"))
        for folder in (old, new):
            folder.mkdir(parents=True)
        if isinstance(expected, str):
            with pytest.raises((GPUSpawnerError, HTTPError), match=re.escape(expected)):
                asyncio.run(new_job(config, ours, new / "home", monkeypatch))
            continue
        now = asyncio.run(new_job(config, ours, new / "home", monkeypatch))
        was = asyncio.run(old_job(configuration(name), choice, old / "home", monkeypatch))
        but = case.but.get(key, (NONE, NONE))[at]

        assert differences(was, now) == expected | but, key


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name", [name for name in CASES if "hook_before" not in CASES[name].decide and not has_form(CASES[name])]
)
def test_the_job_is_shown(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpuspawner: Call
) -> None:
    """Its options, by the command; or the same refusal."""
    case = CASES[name]
    config = changed(name, way, tmp_path)
    if (name, way) == ("login-node", "migrated"):  # whose login node knows the accounts, and is not here
        config.write_text(config.read_text("utf-8") + "c.GPUSlurmSpawner.query_prefix = ''\n", "utf-8")
    for key, choice in case.choices.items():
        shown = gpuspawner("show", key, "--user", USER, "--config", config)
        if isinstance((case.one_line, case.migrated)[WAYS.index(way)], str):
            assert (shown.exit_code, shown.stdout, len(shown.stderr.splitlines())) == (1, "", 1), shown.stderr
            continue
        ours = of_the_way(case, way, choice)
        (tmp_path / key).mkdir()
        now = asyncio.run(new_job(config, ours, tmp_path / key / "home", monkeypatch))
        options = {option: text.replace(f"/home/{USER}", "~") for option, text in sbatch_options(shown.stdout).items()}

        options.pop("clusters", None)
        assert options == {option: text for option, text in now.options.items() if option != "clusters"}, shown.stderr


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_what_the_check_says(name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No fault that is none, and none that is left out."""
    put_ssh(tmp_path / "bin", monkeypatch)
    try:
        findings = of_configuration(load_site(changed(name, way, tmp_path)))
    except GPUSpawnerError as error:  # of which the command says that alone
        said = [f"refused: {error.message.partition(': ')[0]}"]
    else:
        bad = [row for row in findings if row.severity is not Severity.OK and row.where != "Slurm"]
        said = [f"{row.severity.value} {row.where.partition(':')[0].partition(' (')[0]}" for row in bad]

    assert sorted(set(said)) == sorted(CASES[name].found[WAYS.index(way)])


@pytest.mark.parametrize("name", CASES)
def test_each_difference_has_its_row(name: str) -> None:
    """Of an option; and what is to be decided."""
    case, listed = CASES[name], migrate(configuration(name)).differences
    decide = sorted(row.code for row in listed if row.kind is Kind.DECIDE and row.code != "no_gpus")
    assert decide == sorted(case.decide)
    if not isinstance(case.migrated, str):
        every = case.migrated.union(*(of_migrated for _, of_migrated in case.but.values()))
        options = {line.partition(":")[0] for line in every if line.startswith("--")} - {"--clusters"}
        assert options - {row.where for row in listed} == set()
        assert (every >= PREFIX) == ("exec_prefix" in [row.where for row in listed])


def test_variables_that_are_added_have_a_row() -> None:
    """wrapspawner had them in the place of those of all servers."""
    listed = migrate(configuration("conda-profiles")).differences
    rows_of_variables = [(row.where, row.was) for row in listed if row.code == "environment_added"]

    assert rows_of_variables == [("c.ProfilesSpawner.profiles[2]: environment", "OWN")]


def test_code_is_named_in_its_row() -> None:
    """And not by its address, which is another one each time."""
    listed = migrate(configuration("datacenter")).differences

    assert {row.was for row in listed if row.code.startswith(("form_stays", "hook_"))} == {
        "before_spawn()",
        "options_form()",
        "options_from_form()",
    }


def test_variables_of_all_spawners_that_are_added_have_a_row(tmp_path: Path) -> None:
    """The Slurm spawner's were in their place, and stay so of the same names."""
    (tmp_path / "c.py").write_text(
        'c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"\n'
        'c.Spawner.environment = {"A": "1", "B": "2"}\nc.BatchSpawnerBase.environment = {"B": "3"}\n'
    )
    listed = migrate(tmp_path / "c.py").differences

    assert [(row.where, row.was, row.why) for row in listed if row.code == "environment_of_all"] == [
        (
            "c.Spawner.environment",
            "A",
            "c.BatchSpawnerBase.environment had its variables in place of those of all spawners",
        )
    ]
