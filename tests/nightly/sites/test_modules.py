"""Environment modules in login shells only: Lmod on one node, Tcl's on another, and what people's own profiles do.

The packages are Debian's. Since they conflict, and would give ``module`` to every login shell of this host, each is
unpacked and laid over the root folder of one node. The environment ``miniconda/24`` that a module offers is a real
virtual environment; there is no conda. Users are real accounts, of which two have fish and tcsh as login shells.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, ClusterDescription, SimulatedPartition
from tests.fixtures.hubs import STAND_IN, offer, start_hub
from tests.fixtures.site import AS_USERS
from tests.fixtures.slurm import ChangedSlurm, needs_layers
from tests.fixtures.users import accounts
from tests.hub.servers import environment, start
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, answers, profiles
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

NODES = {node.name: node for node in DEMO_CLUSTER.nodes}
CLUSTER = ClusterDescription(
    nodes=(NODES["g1"], NODES["c1"]),
    partitions=(SimulatedPartition("gpu", ("g1",)), SimulatedPartition("tcl", ("c1",), default=True)),
)
PACKAGES = {"g1": "lmod", "c1": "environment-modules"}
"""The Debian package of each node."""
MODULE = "#%Module1.0\nprepend-path PATH {folder}/env/bin\nsetenv CONDA_DEFAULT_ENV course\n"
BANNER = "echo 'Welcome to the cluster'\necho 'Scratch is deleted on Sunday' >&2\n"
"""A file in ``/etc/profile.d`` of both nodes."""
COMMAND = "[jupyterhub-singleuser]"
"""Which is found only after the module is loaded."""
LINES = """
c.GPUSlurmSpawner.req_prologue = '''
module use {folder}/modulefiles
[ "${{SITE_MODULE-}}" = none ] || module load "${{SITE_MODULE-miniconda/24}}"
'''
"""
"""The site's prologue, in which a profile may name another module."""
OTHERS = """
- {display_name: Small, slug: small, command: [jupyterhub-singleuser],
   slurm: {partition: gpu, cpus: 1, memory: 600M, time: "0:10:00"}}
- {display_name: Tcl modules, slug: tcl, command: [jupyterhub-singleuser],
   slurm: {partition: tcl, cpus: 1, memory: 600M, time: "0:10:00"}}
- {display_name: The profile's modules, slug: modules, command: [jupyterhub-singleuser],
   slurm: {partition: tcl, cpus: 1, memory: 600M, time: "0:10:00"},
   environment: {variables: {SITE_MODULE: none}, module_use: FOLDER/modulefiles, modules: [miniconda/24]}}
- {display_name: No login shell, slug: bare, command: [jupyterhub-singleuser],
   slurm: {partition: gpu, cpus: 1, memory: 600M, time: "0:10:00"},
   environment: {variables: {SITE_MODULE: none}, module_use: FOLDER/modulefiles, modules: [miniconda/24],
     login_shell: false}}
- {display_name: No such module, slug: missing, command: [jupyterhub-singleuser],
   slurm: {partition: gpu, cpus: 1, memory: 600M, time: "0:10:00"},
   environment: {variables: {SITE_MODULE: miniconda/99}}}
- {display_name: Impatient, slug: impatient, command: [jupyterhub-singleuser], start_timeout: 20,
   slurm: {partition: gpu, cpus: 1, memory: 600M, time: "0:10:00"}}
"""


@dataclass(frozen=True)
class Person:
    """Somebody with files and a login shell of her own, and what becomes of her server."""

    files: Mapping[str, str]
    shell: str = "/bin/bash"
    profile: str = "small"
    why: str = ""
    """What she reads of a server that does not start; empty: it starts."""
    log: str = ""
    """What the log of her job has."""


PEOPLE = {
    "prints": Person({".profile": "echo To standard output\necho To standard error >&2\n"}, log="To standard error"),
    "path": Person({".profile": "PATH=/usr/bin:/bin\nexport PATH\n"}),
    "opt": Person({".profile": "export PATH=/opt/site/bin\n"}),
    "errs": Person({".profile": "nosuchcommand\nfalse\n"}, log="nosuchcommand"),
    "strict": Person({".bash_profile": "set -euo pipefail\n"}),
    "traced": Person({".bash_profile": "set -xv\nshopt -s failglob nocaseglob\nset -fC\n"}),
    "fields": Person({".bash_profile": "IFS=:\ncd /\numask 077\n"}),
    "traps": Person({".bash_profile": "trap 'kill $SSH_AGENT_PID' EXIT\ntrap '' TERM INT\n"}),
    "slow": Person({".profile": "sleep 20\n"}),
    "asks": Person({".profile": "read -p 'Which project? ' PROJECT\n"}),
    "fish": Person({".config/fish/config.fish": "set -x PATH /opt/site/bin\n"}, "/usr/bin/fish"),
    "tcsh": Person({".login": "setenv PATH /opt/site/bin\nexit 1\n", ".cshrc": "exit 1\n"}, "/usr/bin/tcsh"),
    "tcl": Person({".profile": "PATH=/usr/bin:/bin\n"}, profile="tcl"),
    "modules": Person({".profile": "set -u\nmodule purge\n"}, profile="modules"),
    "execs": Person({".bashrc": "exec fish\n"}, why="look for exec or exit"),
    "exits": Person({".profile": "exit 1\n"}, why="look for exec or exit"),
    "insists": Person(
        {".profile": 'until [ -n "$PROJECT" ]; do read -p "Which project? " PROJECT; sleep 1; done\n'},
        profile="impatient",
        why="look for what asks a question or takes long in ~/.bash_profile",
    ),
    "bare": Person({}, profile="bare", why="There is no module command on g1."),
    "missing": Person(
        {}, profile="missing", why="There is no command jupyterhub-singleuser on g1.", log='unknown: "miniconda/99"'
    ),
}


def unpacked(package: str, folder: Path) -> Path:
    """The files of a Debian package in the new folder; skips the test where it cannot be downloaded."""
    parts = folder / "parts"
    parts.mkdir(parents=True)
    for command in (["apt-get", "download", package], ["sh", "-c", "dpkg -x *.deb ."]):
        done = subprocess.run(command, cwd=parts, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no package {package}: {done.stderr.strip()[-200:]}")
    next(parts.glob("*.deb")).unlink()
    return parts.rename(folder / "root")


def node_with(package: str, folder: Path) -> Path:
    """What is laid over the root folder of a node with this package."""
    root = unpacked(package, folder)
    (root / "etc/profile.d/zz-banner.sh").write_text(BANNER)
    return root


def provide_environment(folder: Path) -> None:
    """The virtual environment with a single-user server, and the module that offers it."""
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    server = folder / "env/bin/jupyterhub-singleuser"
    server.write_text(f"#!{folder}/env/bin/python3\n{STAND_IN.read_text()}")
    server.chmod(0o755)
    module = folder / "modulefiles/miniconda/24"
    module.parent.mkdir(parents=True)
    module.write_text(MODULE.format(folder=folder))


def give(name: str, home: Path, person: Person) -> None:
    """Her own files, in place of those that a new account has."""
    for file, text in person.files.items():
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(text)
    subprocess.run(["chown", "-R", f"{name}:", str(home)], check=True)


@pytest.fixture(scope="module")
def names(public_folder: Path) -> Iterator[Mapping[str, str]]:
    """The accounts by the names above."""
    for shell in ("fish", "tcsh"):
        if not Path("/usr/bin", shell).exists():
            pytest.skip(f"{shell} is not installed")
    shells = {"ada": "/bin/bash", "ada-minute": "/bin/bash", **{end: person.shell for end, person in PEOPLE.items()}}
    with accounts(public_folder, shells) as users:
        yield users


@pytest.fixture(scope="module")
def site(
    needs_slurm: None,
    needs_sudo: None,
    names: Mapping[str, str],
    site_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A hub that submits jobs as its users, and two nodes."""
    needs_layers(site_folder / "attempt")
    over = {node: node_with(package, site_folder / node) for node, package in PACKAGES.items()}
    provide_environment(site_folder)
    for end, person in PEOPLE.items():
        give(names[end], site_folder.parent / names[end], person)
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, site_folder / "slurm", lambda text: text, over=over))
        lines = AS_USERS + CONFIG + LINES.format(folder=site_folder)
        hub = start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), lines=lines, profiles=profiles(COMMAND))
        yield Site(hub, slurm, user=names["ada"])


class TestMainJob(MainJob):
    """The main job, whose server is found by ``module load`` in the site's prologue."""


@pytest.fixture(scope="module")
def visitors(site: Site, names: Mapping[str, str], site_folder: Path) -> Mapping[str, Visitor]:
    """The people, who signed in before their servers were started; all are being started, or have failed."""
    offer(site.hub, "others", OTHERS.replace("FOLDER", str(site_folder)))
    visitors = {end: Visitor(site.hub, names[end]) for end in PEOPLE}
    for end, person in PEOPLE.items():
        start(site.hub, names[end], person.profile)
    return visitors


@pytest.mark.parametrize("end", [end for end, person in PEOPLE.items() if not person.why])
def test_a_server_starts_whatever_its_users_login_files_do(
    site: Site, visitors: Mapping[str, Visitor], end: str
) -> None:
    """It answers in the module's environment, and its log has what the files printed."""
    visitor, person = visitors[end], PEOPLE[end]
    site.hub.wait(visitor.name, ready=True, timeout=120)
    log = visitor.look(f"/hub/gpuspawner/log/{visitor.name}").soup.text
    environ = environment(site.hub, visitor.name)
    assert answers(replace(site, user=visitor.name))
    assert (person.log in log, environ["CONDA_DEFAULT_ENV"], environ["SHELL"]) == (True, "course", person.shell)
    site.hub.end(visitor.name)


@pytest.mark.parametrize("end", [end for end, person in PEOPLE.items() if person.why])
def test_a_server_that_cannot_start_says_why(site: Site, visitors: Mapping[str, Visitor], end: str) -> None:
    """The page of a start that failed names the cause, also where the log has only a greeting."""
    visitor, person = visitors[end], PEOPLE[end]
    wait_until(lambda: not site.hub.server(visitor.name), seconds=120)
    page = visitor.pending().text
    assert (person.why in page, person.log in page) == (True, True), page


@pytest.mark.usefixtures("visitors")
def test_check_names_what_a_profile_lacks_and_a_user_whose_login_shell_ends(
    site: Site, names: Mapping[str, str]
) -> None:
    """By a job of the user on each node; that of somebody else finds only the profiles' own faults."""
    of_profiles = {("environment-fails", "profile bare"), ("command-missing", "profile missing")}
    errors = {
        end: {
            (finding["code"], finding["where"])
            for finding in site.check("--submit", "--user", names[end])
            if finding["severity"] == "error"
        }
        for end in ("prints", "exits", "execs")
    }
    of_login = {("login-shell-ends", "node g1"), ("login-shell-ends", "node c1"), ("environment-fails", "profile bare")}
    assert errors == {"prints": of_profiles, "exits": of_login, "execs": of_login}
