"""Two configurations of batchspawner's hubs: with it and wrapspawner, with one line changed, and one of them migrated.

Every profile is a kind of configuration, of which a server is started on each hub; what the jobs have by Slurm's word,
what the servers find, and what they leave behind is the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.migrate.migration import migrate
from jupyterhub_gpuspawner.migrate.result import profiles_yaml, settings_text
from tests.fixtures.hubs import NO_SPAWN_WAIT, STAND_IN, start_hub
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIGURATION = '''
import batchspawner, wrapspawner
from batchspawner import SlurmSpawner
from traitlets import Unicode, default

class GpuServers(SlurmSpawner):
    req_partition = Unicode("gpu").tag(config=True)
    req_gres = Unicode("gpu:k80:1").tag(config=True)
    req_runtime = Unicode("0:20:00").tag(config=True)

class HPC(SlurmSpawner):
    req_label = Unicode("none").tag(config=True)
    @default("req_runtime")
    def _minutes(self): return "15"
    @property
    def batch_script(self):
        return """#!/bin/bash
#SBATCH --partition={partition} --mem={memory} --time={runtime} --nice=3
#SBATCH --chdir={homedir} --output={homedir}/log-%j
export LABEL={label}
{cmd}
"""

HEAD = """#!/bin/bash
#SBATCH --partition={{partition}} --mem=100M
#SBATCH --chdir={{homedir}} --output={{homedir}}/log-%j --job-name=site
"""
WITH_UNITS = """#!/bin/bash
#SBATCH --partition={partition} --mem={memory}M --time={runtime}:00:00
#SBATCH --chdir={homedir} --output={homedir}/log-%j
{cmd}
"""
c.Spawner.cmd = ["COMMAND"]
c.Spawner.args = []
c.Spawner.environment = {"SITE": "the site's", "ODD": "a 'b' \\"c\\" $d \\\\e"}
c.Spawner.env_keep = ["PATH", "LANG", "SLURM_CONF"]
c.SlurmSpawner.exec_prefix = ""
c.SlurmSpawner.req_partition = "batch"
c.SlurmSpawner.req_memory = "100M"
c.SlurmSpawner.req_srun = ""
c.SlurmSpawner.state_exechost_exp = "127.0.0.1"
c.GpuServers.req_partition = "gpu"
c.GpuServers.req_nprocs = "2"
c.HPC.req_label = "maths"
SLURM = "batchspawner.SlurmSpawner"
c.ProfilesSpawner.profiles = [
    ("Nothing of its own", "plain", SLURM, {}),
    ("A class with requests", "class", GpuServers, {"req_memory": "200M"}),
    ("A class with its script", "script-of-class", HPC, {}),
    ("A class, and a value", "class-and-value", HPC, {"req_label": "chemistry", "req_runtime": "30"}),
    ("Units in its template", "units", SLURM, {"batch_script": WITH_UNITS, "req_memory": "150", "req_runtime": "2"}),
    ("Braces of the shell", "braces", SLURM, {"batch_script": HEAD + "export IN_HOME=${HOME}/x\\n{{cmd}}\\n"}),
    (
        "A template with quotes", "quotes", SLURM,
        {"batch_script": HEAD + "export PS1_='a b'\\nbash -c 'export INNER=1; exec {{cmd}}'\\n"},
    ),
    (
        "A template that cleans up", "trap", SLURM,
        {"batch_script": HEAD + "T=$(mktemp -d)\\nexport SCRATCH=yes\\n"
         "trap 'rm -r $T; echo done > ended' EXIT\\n{{cmd}}\\n"},
    ),
    (
        "A server in the background", "background", SLURM,
        {"batch_script": HEAD + "set -e\\nserve() { {{cmd}}; }\\nserve &\\nwait $!\\n"},
    ),
    (
        "Options of several lines", "lines", SLURM,
        {"req_options": "--nice=7 --constraint=cpu\\n#SBATCH --nodes=1\\n#SBATCH --exclude=d1"},
    ),
    (
        "Names that nobody has", "names", SLURM,
        {"req_nodes": "1", "req_cores": "2", "req_nprocs": "3", "req_runtime": "0:45:00"},
    ),
    (
        "A prologue", "prologue", SLURM,
        {"req_prologue": "export FIRST=1\\ncd /tmp\\nexport SECOND=$PWD\\necho one > ~/prologue", "req_runtime": "25"},
    ),
    (
        "A container", "container", SLURM,
        {"batch_script": HEAD + "export PATH=$HOME/../../bin:$PATH\\napptainer exec --nv /images/x.sif {{cmd}}\\n"},
    ),
    ("Variables of its own", "variables", SLURM, {"default_url": "/lab", "environment": {"OWN": "1"}}),
]
'''
OF_A_CLASS = """
from batchspawner import SlurmSpawner
from traitlets import Unicode

class Site(SlurmSpawner):
    req_project = Unicode("none").tag(config=True)
    req_runtime = Unicode("20").tag(config=True)
    batch_script = Unicode('''#!/bin/bash
#SBATCH --partition={{partition}} --mem={{memory}}M --time={{runtime}} --cpus-per-task={{nprocs}}
#SBATCH --chdir={{homedir}} --output={{homedir}}/log-%j
{% if options %}#SBATCH {{options}}
{% endif %}
export PROJECT={{project}}
{% if app == "lab" %}export APP={{app}}
{% endif %}
{{cmd}}
''').tag(config=True)

c.JupyterHub.spawner_class = Site
c.JupyterHub.load_groups = {"people": {"users": ["member"]}}
c.Spawner.cmd = ["COMMAND"]
c.Spawner.args = []
c.Spawner.env_keep = ["PATH", "LANG", "SLURM_CONF"]
c.Spawner.req_memory = "120"
c.SlurmSpawner.exec_prefix = ""
c.SlurmSpawner.req_partition = "batch"
c.SlurmSpawner.state_exechost_exp = "127.0.0.1"
c.Site.req_project = "maths"
c.Spawner.group_overrides = {
    "1": {"groups": ["people"], "spawner_override": {"req_runtime": "40", "req_project": "theirs"}},
}
c.Spawner.options_form = '<select name="size"><option>small</option><option>large</option></select>'
make_home = c.Spawner.pre_spawn_hook

def before(spawner):
    make_home(spawner)
    size = spawner.user_options.get("size", "small")
    spawner.req_nprocs = {"small": "1", "large": "3"}[size]
    spawner.environment = {**spawner.environment, "SIZE": size}
    if size == "large":
        spawner.req_memory, spawner.req_options = "300", "--nice=5"

c.Spawner.pre_spawn_hook = before
"""
APPTAINER = """#!/bin/bash
# as the program of that name: its own words, and then the command
shift
while [[ $1 == --* ]]; do shift; done
export IN_CONTAINER=$1
shift
exec "$@"
"""
WITH_BATCHSPAWNER = """
import os
import batchspawner.batchspawner as theirs
from types import SimpleNamespace
homes_of_users = os.environ["GPUSPAWNER_DEMO_FOLDER"] + "/homes"
theirs.pwd = SimpleNamespace(
    getpwnam=lambda name: SimpleNamespace(pw_dir=f"{homes_of_users}/{name}", pw_shell="/bin/bash")
)
"""
WRAPPED = 'c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"\n'
ONE_LINE = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles_dir = ""
"""
IMPORTS = {
    "from batchspawner import SlurmSpawner": "from jupyterhub_gpuspawner import GPUSlurmSpawner as SlurmSpawner",
}
KINDS = re.findall(r'\(\s*"[^"]+", "([a-z-]+)", (?:SLURM|HPC|GpuServers)', CONFIGURATION)
CHOICES: dict[str, dict[str, str]] = {kind: {"profile": kind} for kind in KINDS}
OF_THE_CLASS: dict[str, dict[str, str]] = {
    "nobody": {},
    "member": {},
    "small": {"size": "small", "app": "lab"},
    "large": {"size": "large", "app": "tree", "partition": "batch"},
}
"""What people send, in whose names the hub of one class has a server each; a member is in a group."""
OF_A_JOB = (
    *("Partition", "TimeLimit", "MinMemoryNode", "NumCPUs", "NumNodes", "TresPerNode", "Nice", "Features"),
    *("ExcNodeList", "WorkDir"),
)
OF_A_SERVER = (
    *("SITE", "ODD", "LABEL", "IN_HOME", "PS1_", "INNER", "SCRATCH", "FIRST", "SECOND", "IN_CONTAINER", "OWN"),
    *("PROJECT", "APP", "SIZE", "HOME", "USER", "SHELL", "JUPYTERHUB_DEFAULT_URL", "CUDA_VISIBLE_DEVICES"),
)


@dataclass(frozen=True)
class Started:
    """A server, with the hub's own folder as ``~~``."""

    job: dict[str, str]
    found: dict[str, str]
    folder: str
    left: dict[str, str]
    """Files in its home in the end; of a log no content."""


@dataclass(frozen=True)
class Way:
    """A hub of the configuration: its lines after those of the demo's, and its profiles as YAML."""

    lines: str
    profiles: str = "[]"
    choices: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: CHOICES)


def ways(folder: Path) -> dict[str, Way]:
    """With batchspawner, with one line changed, and migrated."""
    command = folder / "jupyterhub-singleuser"
    command.write_text(f"#!{sys.executable}\n{STAND_IN.read_text()}")
    command.chmod(0o755)
    text = CONFIGURATION.replace("COMMAND", str(command))
    old = folder / "old.py"
    old.write_text(WRAPPED + text)
    migration = migrate(old)
    replaced = f"for section in {sorted(migration.old.old_sections)!r}: c.pop(section, None)"
    ((theirs, ours),) = IMPORTS.items()
    of_a_class = OF_A_CLASS.replace("COMMAND", str(command))
    (folder / "of_a_class.py").write_text(of_a_class)
    with_form = migrate(folder / "of_a_class.py")
    pops = f"""
for section in {sorted(with_form.old.old_sections)!r}:
    for name in [*c.get(section, ())]:
        if f"c.{{section}}.{{name}}" not in {with_form.stays!r}:
            del c[section][name]
for name in {[name.rpartition(".")[2] for name in with_form.old.of_all_spawners()]!r}:
    c.Spawner.pop(name, None)
"""
    return {
        "batchspawner, a class": Way(of_a_class + WITH_BATCHSPAWNER, choices=OF_THE_CLASS),
        "one line, a class": Way(of_a_class.replace(theirs, ours), choices=OF_THE_CLASS),
        "migrated, a class": Way(f"{of_a_class}{pops}{settings_text(with_form)}", choices=OF_THE_CLASS),
        "batchspawner": Way(text + WITH_BATCHSPAWNER + WRAPPED),
        "one line": Way(text + ONE_LINE),
        "migrated": Way(f"{text}\n{replaced}\n{settings_text(migration)}", profiles_yaml(migration.in_files)),
    }


def started_on(hub: HubProcess, slurm: PrivateSlurm, choices: Mapping[str, Mapping[str, str]]) -> dict[str, Started]:
    """A server of each choice, all at once, and what is left when they have been stopped."""
    (hub.folder / "bin").mkdir()
    (hub.folder / "bin" / "apptainer").write_text(APPTAINER)
    (hub.folder / "bin" / "apptainer").chmod(0o755)
    hub.api("POST", "/users", {"usernames": [*choices]})
    with ThreadPoolExecutor(len(choices)) as pool:
        answers = pool.map(lambda name: hub.api("POST", server_path(name), dict(choices[name])), choices)
        refused = {
            name: answer.text for name, answer in zip(choices, answers, strict=True) if answer.status_code >= 400
        }
    assert refused == {}, hub.log_end()
    for name in choices:
        hub.wait(name, ready=True)
    states = {name: (hub.server(name) or {})["state"] for name in choices}
    jobs = {name: str((state.get("child_state") or state)["job_id"]) for name, state in states.items()}
    records = {name: slurm.run("scontrol", "show", "job", job) for name, job in jobs.items()}
    servers = {
        name: [requests.get(f"{hub.url}/user/{name}/{path}", timeout=20).json() for path in ("environ", "process")]
        for name in choices
    }
    with ThreadPoolExecutor(len(choices)) as pool:
        [*pool.map(hub.end, choices)]
    wait_until(lambda: not slurm.run("squeue", "-h", "-j", ",".join(jobs.values())), "jobs that do not end")

    def plain(text: str) -> str:
        return text.replace(str(hub.folder), "~~")

    return {
        name: Started(
            {key: plain(value) for key, value in fields(records[name]).items() if key in OF_A_JOB},
            {key: plain(_shown(key, value)) for key, value in servers[name][0].items() if key in OF_A_SERVER},
            plain(servers[name][1]["folder"]),
            left_in(hub.folder / "homes" / name),
        )
        for name in choices
    }


def _shown(name: str, value: str) -> str:
    """Of GPUs how many: which one is free depends on the other hub's server."""
    return str(len(value.split(","))) if name == "CUDA_VISIBLE_DEVICES" else value


def fields(record: str) -> dict[str, str]:
    """What scontrol says of a job."""
    return dict(word.split("=", 1) for word in record.split() if "=" in word)


def left_in(home: Path) -> dict[str, str]:
    """The files below a home, but those that the demo makes."""
    paths = (path for path in home.rglob("*") if path.is_file() and ".jupyter" not in path.parts)
    return {
        ("a log" if "log" in path.name else path.name): "" if "log" in path.name else path.read_text() for path in paths
    }


@pytest.fixture(scope="module")
def starts(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Started]]:
    """All kinds by all ways."""
    every = ways(tmp_path_factory.mktemp("ways"))
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        hubs = {}
        for name, way in every.items():
            lines, folder = f"{way.lines}\n{NO_SPAWN_WAIT}", tmp_path_factory.mktemp("hub")
            hub = start_hub(stack, slurm_cluster, folder, lines=lines, profiles=way.profiles)
            hubs[name] = pool.submit(started_on, hub, slurm_cluster, way.choices)
        return {name: started.result() for name, started in hubs.items()}


@pytest.mark.parametrize("way", ["one line", "migrated"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_server_is_batchspawners(starts: dict[str, dict[str, Started]], kind: str, way: str) -> None:
    """Its job, its environment, its folder and the files that it leaves; the list of differences has the one row."""
    was = starts["batchspawner"][kind]
    added = starts["batchspawner"]["plain"].found.items() - was.found.items() if kind == "variables" else ()
    of_all = {name: value for name, value in added if name in ("SITE", "ODD")}

    assert starts[way][kind] == replace(was, found={**of_all, **was.found})


@pytest.mark.parametrize("way", ["one line", "migrated"])
@pytest.mark.parametrize("person", OF_THE_CLASS)
def test_the_server_of_a_class_of_the_sites_own_is_batchspawners(
    starts: dict[str, dict[str, Started]], person: str, way: str
) -> None:
    """With its template and variables, requests of all spawners, settings of a group, a form's values and a hook."""
    was = starts["batchspawner, a class"][person]

    assert starts[f"{way}, a class"][person] == was
    assert (was.found["PROJECT"], was.found["SIZE"]) == (
        "theirs" if person == "member" else "maths",
        "large" if person == "large" else "small",
    )
