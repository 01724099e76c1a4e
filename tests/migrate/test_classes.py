"""Spawner classes of a site's own: batchspawner's scripts of their servers, and ours, with one line changed.

The configurations are whole files, of hubs whose classes are defined in them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from batchspawner import SlurmSpawner
from traitlets.config import Config

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.migration import migrate
from jupyterhub_gpuspawner.migrate.result import Kind
from jupyterhub_gpuspawner.site.configuration import load_site, read_config
from tests.check.sites import of_configuration
from tests.fixtures.batchspawners import OURS, rendered, requested, spawner_of
from tests.migrate.conftest import SITES, write_result
from tests.migrate.test_sites import USER, ReadProfiles, new_script

FILES = sorted((SITES.parent / "classes").glob("*.py"))
AFTER = "c.GPUSlurmSpawner.hub_name = 'hub'\nc.GPUSlurmSpawner.req_homedir = '/home/{username}'\n"


def old_scripts(path: Path) -> dict[str, str]:
    """The script that batchspawner renders for each profile, by its key; of a hub of one class, by an empty key."""
    config = read_config(path)
    named = config.JupyterHub.spawner_class
    if named != "wrapspawner.ProfilesSpawner":
        return {"": rendered(spawner_of(SlurmSpawner if isinstance(named, str) else named, config))}
    profiles = config.ProfilesSpawner.profiles
    children = {key: ReadProfiles(config=Config(), profiles=profiles).child_of(key) for _, key, _, _ in profiles}
    return {key: rendered(spawner_of(cls, config, **traits)) for key, (cls, traits) in children.items()}


def shell_lines(script: str) -> list[str]:
    """The lines of a site's own before the server, without those of batchspawner's own template."""
    lines = [line.strip() for line in script.partition("jupyterhub-singleuser")[0].split("\n")]
    theirs = re.compile("#|set -euo|trap |which |srun|$")
    return [line for line in lines if not theirs.match(line)]


def with_one_line_changed(path: Path, folder: Path) -> None:
    """The configuration with a spawner of this package in the place of its own."""
    spawner = "gpu-profiles" if "wrapspawner" in path.read_text("utf-8") else "gpu-slurm"
    text, count = re.subn(r"(?m)^(c\.JupyterHub\.spawner_class = ).*", rf'\1"{spawner}"', path.read_text("utf-8"))
    assert count == 1
    (folder / "jupyterhub_config.py").write_text(text, "utf-8")


def compare(was: str, now: str) -> None:
    """The same request, and the site's lines in the same order before the server."""
    assert requested(now) == requested(was)
    lines = iter(line.strip() for line in now.split("\n"))
    assert [line for line in shell_lines(was) if line not in lines] == []


@pytest.mark.parametrize(
    "path", [path for path in FILES if not path.name.startswith("hub_")], ids=lambda path: path.stem
)
def test_profiles_of_these_classes_are_the_same_jobs(path: Path, tmp_path: Path) -> None:
    """With one line changed: what a class sets, and its sections, are its profiles'."""
    with_one_line_changed(path, tmp_path)
    for key, was in old_scripts(path).items():
        compare(was, new_script(tmp_path, key))


BATCHSPAWNERS = """
from batchspawner import SlurmSpawner
from traitlets import Unicode
class MySpawner(SlurmSpawner):
    req_runtime = "4:00:00"
    req_conda_env = Unicode("lab").tag(config=True)
    exec_prefix = "sudo -u {username}"
    def state_ispending(self): return False
    async def submit_batch_script(self): return ""
    def helper(self): return ""
c.Authenticator.allow_all = True
c.JupyterHub.cleanup_servers = False
"""


def found(tmp_path: Path, lines: str) -> list[str]:
    """What the check says of a configuration with that class, beside what is right, and Slurm, which is not here."""
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(BATCHSPAWNERS + lines + AFTER, "utf-8")
    findings = of_configuration(load_site(path))
    return [
        f"{finding.where}: {finding.text} {finding.fix}".rstrip()
        for finding in findings
        if finding.severity is not Severity.OK and finding.where != "Slurm"
    ]


IN_A_TUPLE = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.ProfilesSpawner.profiles = [("A", "a", MySpawner, {})]
"""


def test_how_commands_are_run_is_not_a_profiles(tmp_path: Path) -> None:
    """A class with a prefix of its own: the error names it, and the line that sets it for all servers."""
    with pytest.raises(ConfigError, match="exec_prefix is the same for all servers") as refused:
        found(tmp_path, IN_A_TUPLE)

    assert refused.value.hint.endswith("or for all servers: c.GPUSlurmSpawner.exec_prefix = 'sudo -u {username}'.")


def test_methods_of_a_profiles_class_are_named(tmp_path: Path) -> None:
    """Those in the place of a spawner's, with the class; a plain attribute is a value, and the own setting one too."""
    set_here = "c.GPUSlurmSpawner.exec_prefix = MySpawner.exec_prefix\nc.MySpawner.cmd = ['x']\n"
    lines = found(tmp_path, IN_A_TUPLE + set_here)

    assert [line.partition(" has no effect")[0] for line in lines] == [
        "c.MySpawner.cmd:",
        "MySpawner.state_ispending:",
        "MySpawner.submit_batch_script:",
    ]
    script = new_script(tmp_path, "a")
    assert requested(script) == {"time": "4:00:00"}


def test_a_class_that_no_server_has_is_named_with_its_settings(tmp_path: Path) -> None:
    """Whatever it is called: a hub whose spawner_class was changed has such a one."""
    lines = found(tmp_path, 'c.JupyterHub.spawner_class = "gpu-slurm"\nc.MySpawner.req_conda_env = "/opt/lab"\n')

    assert [line.partition(". ")[0] for line in lines] == [
        "c.MySpawner.req_conda_env: has no effect: no Slurm server reads this class",
        "MySpawner: no server is of this class, so what it sets and does has no effect (exec_prefix, req_conda_env, "
        "req_runtime, state_ispending, submit_batch_script)",
    ]


FROM_OURS = """
from jupyterhub_gpuspawner import GPUSlurmSpawner
class Ours(GPUSlurmSpawner):
    req_runtime = "4:00:00"
    req_flavour = "large"
    req_conda_env = Unicode("lab").tag(config=True)
    batch_script = property(lambda self: "#SBATCH --time={runtime} -C {flavour}\\n# {conda_env}\\n{cmd}\\n")
    def req_nothing(self): return ""
    async def _get_batch_script(self, **subvars): return ""
    async def poll(self): return None
c.JupyterHub.spawner_class = Ours
"""


def test_a_class_that_is_derived_from_ours_keeps_its_values(tmp_path: Path) -> None:
    """Attributes and properties, too; methods that are never called are named."""
    lines = found(tmp_path, FROM_OURS)

    assert [line.partition(" has no effect")[0] for line in lines if "no server is" not in line] == [
        "Ours._get_batch_script:"
    ]
    script = new_script(tmp_path)
    assert requested(script) == {"time": "4:00:00", "constraint": "large"}


WITHOUT_EFFECT = {
    "by a name for the default": ("def _req_username_default(self): return 'of_' + self.user.name", "req_username"),
    "by a decorated method": ("@default('req_username')\n    def _name(self): return 'x'", "req_username"),
    "an attribute": ("batch_query_cmd = 'squeue -h'", "batch_query_cmd"),
    "a trait": ("state_pending_re = Unicode('^PD').tag(config=True)", "state_pending_re"),
    "what no template names": ("req_srun = 'srun'", "req_srun"),
    "nothing": ("req_srun = ''", ""),
}


@pytest.mark.parametrize(("lines", "name"), WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_what_a_class_derived_from_ours_sets_without_effect_is_named(lines: str, name: str, tmp_path: Path) -> None:
    """As in its section; a job belongs to the account of the user's own name, for one."""
    ours = "from traitlets import default\nfrom jupyterhub_gpuspawner import GPUSlurmSpawner\n"
    named = found(tmp_path, f"{ours}class Ours(GPUSlurmSpawner):\n    {lines}\nc.JupyterHub.spawner_class = Ours\n")

    assert [line.partition(" has no effect")[0] for line in named if "no server is" not in line] == (
        [f"Ours.{name}:"] if name else []
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_these_hubs_are_migrated_to_the_same_jobs(path: Path, tmp_path: Path) -> None:
    """What it is beside batchspawner's own scripts, and no difference but those of every job."""
    migration = migrate(path)
    write_result(migration, tmp_path)
    for key, was in old_scripts(path).items():
        compare(was, new_script(tmp_path, key or "server"))
    listed = {row.where for row in migration.differences if row.where.startswith("--")}

    assert listed <= {f"--{name}" for name in OURS}


UNWRITABLE = """
from batchspawner import SlurmSpawner
from jupyterhub.spawner import LocalProcessSpawner
from traitlets import Unicode, default
class Mine(SlurmSpawner):
    exec_prefix = "sudo -u {username}"
    req_flavour = Unicode("x").tag(config=True)
    @default("req_account")
    def _account(self): return "of_" + self.user.name
    async def start(self): return await super().start()
    def state_ispending(self): return True
    def helper(self): return None
class Here(LocalProcessSpawner):
    pass
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.Mine.cmd = ["x"]
c.ProfilesSpawner.profiles = [
    ("A", "a", Mine, {"req_partition": "p"}),
    ("B", "b", Here, {}),
    ("C", "c", "batchspawner.SlurmSpawner", {"req_partition": "q"}),
]
"""


def test_what_cannot_be_taken_over_from_a_class_is_to_decide(tmp_path: Path) -> None:
    """With the class, or with its section, and with the method."""
    old = tmp_path / "old.py"
    old.write_text(UNWRITABLE, "utf-8")
    at = "c.ProfilesSpawner.profiles"
    rows = [(row.code, row.where) for row in migrate(old).differences if row.kind is Kind.DECIDE]

    assert sorted(rows) == [
        ("class_of_the_file", f"{at}[1]"),
        ("no_gpus", "slurm.gpus"),
        ("own_method", "Mine.start"),
        ("own_method", "Mine.state_ispending"),
        ("own_setting", f"{at}[0]: req_flavour"),
        ("same_for_all_servers", f"{at}[0]: Mine.exec_prefix"),
        ("value_of_each_user", "Mine.req_account"),
    ]


OF_CLASSES = {
    "a hook": ("def pre_spawn_hook(self, spawner): pass", "pre_spawn_hook", "hook_before"),
    "a hook that awaits": ("async def auth_state_hook(self, spawner, state): pass", "auth_state_hook", "hook_before"),
    "JupyterHub's method": ("async def run_pre_spawn_hook(self): pass", "run_pre_spawn_hook", "hook_before"),
    "a hook at the end": ("def run_post_stop_hook(self): pass", "run_post_stop_hook", "hook_moved"),
    "a form": ("async def get_options_form(self): return ''", "get_options_form", "form_of_class"),
    "a form by a default": ("def _options_form_default(self): return self.user.name", "options_form", "form_of_class"),
    "a form by a method": (
        "@default('options_form')\n    def _form(self): return 'x'",
        "options_form",
        "form_of_class",
    ),
    "what it sends": ("def options_from_form(self, form): return {}", "options_from_form", "form_of_class"),
}


@pytest.mark.parametrize(("lines", "name", "code"), OF_CLASSES.values(), ids=OF_CLASSES)
@pytest.mark.parametrize("base", ["SlurmSpawner", "ProfilesSpawner"])
def test_each_form_and_hook_of_the_hubs_class_has_one_row(
    base: str, lines: str, name: str, code: str, tmp_path: Path
) -> None:
    """As those of the configuration have."""
    old = tmp_path / "old.py"
    imports = "from batchspawner import *\nfrom wrapspawner import *\nfrom traitlets import default\n"
    old.write_text(
        f"{imports}class Base({base}):\n    {lines}\nclass Hub(Base): pass\nc.JupyterHub.spawner_class = Hub\n"
    )
    rows = [(row.code, row.where) for row in migrate(old).differences if row.where.startswith("Base.")]

    stays = base == "SlurmSpawner" and name in ("get_options_form", "options_form")
    assert rows == [("form_stays" if stays else code, f"Base.{name}")]


def test_profiles_of_a_class_of_the_sites_own_are_profiles(tmp_path: Path) -> None:
    """Those of the section that it reads first; its other settings are named, its hooks once."""
    old = tmp_path / "old.py"
    profiles = [("A", "a", "batchspawner.SlurmSpawner", {"req_partition": "p", "req_options": "--nice"})]
    old.write_text(
        "from wrapspawner import ProfilesSpawner\nclass Mine(ProfilesSpawner): pass\nclass Hub(Mine): pass\n"
        f"c.JupyterHub.spawner_class = Hub\nc.Mine.profiles = {profiles}\nc.ProfilesSpawner.profiles = []\n"
        "c.SlurmSpawner.req_options = '--qos=q'\nc.Hub.pre_spawn_hook = print\nc.Hub.form_template = ''\n"
    )
    migration = migrate(old)
    rows = [(row.code, row.where) for row in migration.differences if row.where[:6] in ("c.Hub.", "c.Mine")]

    assert [profile.document["slurm"] for profile in migration.profiles] == [{"partition": "p", "extra": "--nice"}]
    assert rows == [
        ("wrapper_form", "c.Hub.form_template"),
        ("moved", "c.Mine.profiles[0]"),
        ("hook_before", "c.Hub.pre_spawn_hook"),
    ]


OWN_PROFILES = {
    "a method for the default": ("@default('profiles')\n    def _profiles(self): return {}", "Hub.profiles"),
    "a trait": ("profiles = List({}, config=True)", "Hub.profiles"),
    "an attribute": ("profiles = {}", "Hub.profiles"),
    "a property": ("profiles = property(lambda self: {})", "Hub.profiles"),
    "the configuration wins": ("profiles = List([], config=True)\nc.Hub.profiles = {}", "c.Hub.profiles"),
}


@pytest.mark.parametrize(("lines", "where"), OWN_PROFILES.values(), ids=OWN_PROFILES)
def test_profiles_that_a_class_of_the_sites_own_sets_are_profiles(lines: str, where: str, tmp_path: Path) -> None:
    """However it does; their own classes count, too."""
    profiles = "[('A', 'a', Node, {'req_partition': 'p'})]"
    old = tmp_path / "old.py"
    old.write_text(
        "from batchspawner import SlurmSpawner\nfrom wrapspawner import ProfilesSpawner\n"
        "from traitlets import List, default\nclass Node(SlurmSpawner):\n    req_memory = '4G'\n"
        f"class Hub(ProfilesSpawner):\n    {lines.replace('{}', profiles)}\nc.JupyterHub.spawner_class = Hub\n"
    )
    migration = migrate(old)

    assert [profile.document["slurm"] for profile in migration.profiles] == [{"partition": "p", "memory": "4G"}]
    assert [row.where for row in migration.differences if row.now == "profile a" and "[" in row.where] == [
        f"{where}[0]"
    ]


def test_profiles_of_each_user_are_to_decide(tmp_path: Path) -> None:
    """Those of one are in the result."""
    old = tmp_path / "old.py"
    old.write_text(
        "from wrapspawner import ProfilesSpawner\nclass Hub(ProfilesSpawner):\n    profiles = property(lambda self: "
        "[(self.user.name, 'a', 'batchspawner.SlurmSpawner', {})])\nc.JupyterHub.spawner_class = Hub\n"
    )
    migration = migrate(old)

    assert [row.where for row in migration.differences if row.code == "profiles_of_each_user"] == ["Hub.profiles"]
    assert [profile.document["display_name"] for profile in migration.profiles] == ["somebody"]


@pytest.mark.parametrize("base", ["SlurmSpawner", "MultiSlurmSpawner"])
def test_a_method_of_batchspawners_own_is_none_of_the_site(base: str, tmp_path: Path) -> None:
    """Those of the site's class are named."""
    old = tmp_path / "old.py"
    old.write_text(
        f"from batchspawner import {base}\nclass Hub({base}):\n    def state_gethost(self): return ''\n"
        "c.JupyterHub.spawner_class = Hub\n"
    )
    assert [row.where for row in migrate(old).differences if row.code == "own_method"] == ["Hub.state_gethost"]


ACCOUNTS = {
    "by a name for the default": "def _req_username_default(self): return self.user.name.lower()[1:]",
    "by a decorated method": "@default('req_username')\n    def _name(self): return self.user.name.split('@')[0][1:]",
    "by a property": "req_username = property(lambda self: 'u' + self.user.name)",
}


@pytest.mark.parametrize("of_mixin", [False, True])
@pytest.mark.parametrize("lines", ACCOUNTS.values(), ids=ACCOUNTS)
def test_another_account_than_the_users_name_is_to_decide(lines: str, tmp_path: Path, *, of_mixin: bool) -> None:
    """Its jobs would be submitted as somebody else; a base may be no class of traitlets'."""
    old = tmp_path / "old.py"
    mixin = f"class Mapped:\n    {lines}\nclass Server(Mapped, SlurmSpawner): pass\n"
    server = mixin if of_mixin else f"class Server(SlurmSpawner):\n    {lines}\n"
    imports = "from batchspawner import SlurmSpawner\nfrom traitlets import default\n"
    old.write_text(f"{imports}{server}c.JupyterHub.spawner_class = Server\n", "utf-8")
    where = "Mapped.req_username" if of_mixin else "Server.req_username"
    rows = [row.where for row in migrate(old).differences if row.code == "other_account"]

    assert rows == ([] if of_mixin and "@default" in lines else [where])  # which traitlets does not find there


def test_a_value_of_each_user_is_each_users(tmp_path: Path) -> None:
    """In a hub, where the class is asked for its user."""
    new = tmp_path / "jupyterhub_config.py"
    prefix = "c.GPUSlurmSpawner.exec_prefix = Mine.exec_prefix\n"
    new.write_text(UNWRITABLE.replace("wrapspawner.ProfilesSpawner", "gpu-profiles") + prefix, "utf-8")

    assert requested(new_script(tmp_path, "a")) == {"partition": "p", "account": f"of_{USER}"}
    assert requested(new_script(tmp_path, "c")) == {"partition": "q"}


def test_a_class_of_the_file_that_is_no_job_is_used_as_it_is(tmp_path: Path) -> None:
    """An object, which no dotted name finds."""
    new = tmp_path / "jupyterhub_config.py"
    new.write_text(UNWRITABLE.replace("wrapspawner.ProfilesSpawner", "gpu-profiles") + AFTER, "utf-8")
    spawner = load_site(new).spawner(USER)
    spawner.exec_prefix = "sudo -u {username}"
    spawner.prepare(spawner.resolve({"profile": "b"}))

    assert type(spawner.child_spawner).__name__ == "Here"


def test_a_cluster_that_only_profiles_name_is_told_how_to_name_it(tmp_path: Path) -> None:
    """The error has the line."""
    profile = '("T", "t", "batchspawner.SlurmSpawner", {"req_cluster": "teach"})'
    lines = f'c.JupyterHub.spawner_class = "gpu-profiles"\nc.ProfilesSpawner.profiles = [{profile}]\n'
    first, *_ = found(tmp_path, lines)

    assert "c.GPUSlurmSpawner.clusters = {'teach': {'req_cluster': 'teach'}}" in first
