# ruff: noqa: E501 - a configuration is a line
"""Short configurations, each unlike another's of its kind, by one changed line and by ``migrate``.

The job is batchspawner's but for what every job of this package has, or its start is refused by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tornado.web import HTTPError

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.migrate.migration import migrate
from tests.fixtures.both_ways import Choice, differences, new_job, old_job
from tests.migrate.conftest import written_in_place
from tests.migrate.test_both_ways import NONE, OF_ALL, WAYS, with_one_line_changed

HUB = 'c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"\n'
OWN = "from batchspawner import SlurmSpawner\n"
PROFILES = 'c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"\nS = "batchspawner.SlurmSpawner"\n'
FORM = HUB + 'c.SlurmSpawner.req_partition = "cpu"\nc.SlurmSpawner.req_runtime = "1:00:00"\n'


def template(body: str, settings: str = "") -> str:
    """A hub's with a script of these lines after the first."""
    return f'{HUB}c.SlurmSpawner.batch_script = r"""#!/bin/bash\n{body}\n"""\n{settings}'


@dataclass(frozen=True)
class Variant:
    """A configuration, and how a start is refused, by each way; empty where it is the same job."""

    text: str
    choices: tuple[Choice, ...] = (Choice(),)
    refused: tuple[str, str] = ("", "")
    but: tuple[Set[str], Set[str]] = (NONE, NONE)
    """What differs beside, and is named by the check, by the migration, or is what batchspawner's template leaves out."""


def of(*keys: str) -> tuple[Choice, ...]:
    """A start of each profile."""
    return tuple(Choice(key) for key in keys)


VARIANTS: dict[str, Variant] = {
    # templates
    "template: gigabytes by a filter": Variant(template("#SBATCH --mem={{ memory|default('4') }}G\n{{cmd}}", 'c.SlurmSpawner.req_memory = "6"')),
    "template: a loop": Variant(template("{% for m in ['a', 'b'] %}module load {{m}}\n{% endfor %}#SBATCH -p late\n{{cmd}}")),
    "template: a default partition": Variant(template("#SBATCH -p {{ partition or 'batch' }}\n#SBATCH -c {{nprocs}}\n{{cmd}}", 'c.SlurmSpawner.req_nprocs = "3"')),
    "template: upper case": Variant(template("#SBATCH -p {{ partition|upper }}\n{{cmd}}", 'c.SlurmSpawner.req_partition = "gpu"')),
    "template: sets a variable": Variant(template("{% set gb = memory|int %}#SBATCH --mem={{ gb + 2 }}G\n{{cmd}}", 'c.SlurmSpawner.req_memory = "6"')),
    "template: a comment of jinja": Variant(template("{# --mem=9G #}\n#SBATCH --mem={{memory}}\n{{cmd}}", 'c.SlurmSpawner.req_memory = "6G"')),
    "template: gpus by an if of the user": Variant(template("{% if username == 'ada' %}#SBATCH --gres=gpu:1\n{% else %}#SBATCH --gres=gpu:2\n{% endif %}{{cmd}}")),
    "template: memory of each CPU": Variant(template("#SBATCH --mem-per-cpu={memory}M --cpus-per-task={nprocs}\n{cmd}", 'c.SlurmSpawner.req_memory = "2500"\nc.SlurmSpawner.req_nprocs = "2"')),
    "template: kilobytes": Variant(template("#SBATCH --mem={memory}K\n{cmd}", 'c.SlurmSpawner.req_memory = "4194304"')),
    "template: variables in shell lines": Variant(template("#SBATCH -c {nprocs}\nexport OMP_NUM_THREADS={nprocs} WHO={username}\n{cmd}", 'c.SlurmSpawner.req_nprocs = "4"')),
    "template: homedir in the log": Variant(template("#SBATCH -o {homedir}/logs/%j.out -e {homedir}/logs/%j.err\n{cmd}"), but=(NONE, {'--output: ~/logs/%j.out -> ~/logs/jupyterhub-%j.log', '--error: ~/logs/%j.err -> (none)'})),
    "template: an option that nobody sets": Variant(template("{% if gpus_wanted %}#SBATCH --gres=gpu:{{gpus_wanted}}\n{% endif %}#SBATCH -p a\n{{cmd}}")),
    "template: a name without a value": Variant(template("#SBATCH -p a\nmodule load jupyter{{version}} {{ python|default('3.11') }}\n{{cmd}}")),
    "template: a loop over nothing": Variant(template("{% for m in more_modules %}module load {{m}}\n{% endfor %}#SBATCH -p a\n{{cmd}}")),
    "names: of two environments": Variant(HUB + 'c.SlurmSpawner.environment = {"A": "1", "B": "2"}\nc.Spawner.environment = {"B": "3", "C": "4"}\n', but=(NONE, {"did +   C=4"})),
    # times
    "time: days and hours": Variant(template("#SBATCH -t {runtime}\n{cmd}", 'c.SlurmSpawner.req_runtime = "2-12"')),
    "time: seconds": Variant(template("#SBATCH -t 00:{runtime}:30\n{cmd}", 'c.SlurmSpawner.req_runtime = "45"')),
    "time: unlimited": Variant(template("#SBATCH -t {runtime}\n{cmd}", 'c.SlurmSpawner.req_runtime = "UNLIMITED"')),
    "time: minutes and seconds": Variant(template("#SBATCH -t {runtime}\n{cmd}", 'c.SlurmSpawner.req_runtime = "90:30"')),
    "time: infinite": Variant(template("#SBATCH --time={runtime}\n{cmd}", 'c.SlurmSpawner.req_runtime = "infinite"')),
    "time: days and hours and minutes": Variant(template("#SBATCH --time={runtime}\n{cmd}", 'c.SlurmSpawner.req_runtime = "1-02:30"')),
    "time: least": Variant(template("#SBATCH --time={runtime} --time-min=30\n{cmd}", 'c.SlurmSpawner.req_runtime = "120"')),
    # cmd
    "cmd: sh -c": Variant(template("sh -c 'cd / && {cmd}'")),
    "cmd: bash -c with options": Variant(template("#SBATCH -p a\nbash -ec 'exec {cmd}'")),
    "cmd: here-document with tabs": Variant(template("bash <<-'END'\n\tcd /\n\t{cmd}\nEND")),
    "cmd: function with words": Variant(template('run() { nice -n 5 "$@"; }\nrun {{cmd}}')),
    "cmd: a pipe": Variant(template("{cmd} 2>&1 | cat")),
    "cmd: an or": Variant(template("{cmd} || echo failed")),
    "cmd: if": Variant(template("if {cmd}; then echo ended; fi")),
    "cmd: env": Variant(template("env -u FOO BAR=1 {cmd}")),
    "cmd: twice": Variant(template("if [ -e /none ]; then\n  srun {cmd}\nelse\n  {cmd}\nfi")),
    # traps
    "trap: set -e and a trap": Variant(template("set -e\ntrap 'echo over' EXIT\n{cmd}\nfalse\necho never"), but=({'said + gpuspawner: line N of the script failed, which ends the job: false'}, {'said + gpuspawner: line N of the script failed, which ends the job: false'})),
    "trap: set -o errexit": Variant(
        template("set -o errexit\n{cmd}\nfalse\necho never"),
        but=({"said + gpuspawner: line N of the script failed, which ends the job: false"}, {"said + gpuspawner: line N of the script failed, which ends the job: false"}),
    ),
    "trap: pipefail": Variant(template("set -o pipefail\nfalse | true\necho $?\n{cmd}")),
    "trap: of errors": Variant(template("set -eE\ntrap 'echo bad' ERR\n{cmd}\nfalse")),
    "trap: scratch": Variant(template("T=$TMPDIR/own\nmkdir $T\ntrap 'rm -rf \"$T\"' EXIT\ncd \"$T\"\n{cmd}")),
    "trap: in the epilogue": Variant(template("{cmd}\n{epilogue}", 'c.SlurmSpawner.req_epilogue = "trap \'echo end\' EXIT"')),
    "trap: in the prologue": Variant(template("{prologue}\n{cmd}", 'c.SlurmSpawner.req_prologue = "set -u\\ntrap \'echo end\' 0"')),
    # identity
    "identity: runuser": Variant(HUB + 'c.SlurmSpawner.exec_prefix = ""\nc.SlurmSpawner.batch_submit_cmd = "sudo -u {username} -i /opt/slurm/bin/sbatch --parsable -A phys"\n'),
    "identity: options after sbatch": Variant(HUB + 'c.SlurmSpawner.batch_submit_cmd = "/opt/slurm/bin/sbatch --parsable --gres=gpu:1 -p gpu"\n'),
    "identity: -H": Variant(HUB + 'c.SlurmSpawner.exec_prefix = "sudo -n -H -u {username}"\n'),
    "identity: --user=": Variant(HUB + 'c.SlurmSpawner.exec_prefix = "/usr/bin/sudo --preserve-env --user={username}"\n'),
    "identity: env after sudo": Variant(HUB + 'c.SlurmSpawner.exec_prefix = ""\nc.SlurmSpawner.batch_submit_cmd = "sudo -E -u {username} env SLURM_CONF=/etc/s.conf sbatch --parsable"\n'),
    # options of several lines
    "options: in the section": Variant(HUB + 'c.SlurmSpawner.req_options = "--qos=normal\\n#SBATCH --constraint=v100\\n#SBATCH --nice=5"\n'),
    "options: short ones": Variant(HUB + 'c.SlurmSpawner.req_options = "-A phys -C \'v100|a100\'\\n#SBATCH -x n1"\n'),
    "options: of a profile": Variant(PROFILES + 'c.SlurmSpawner.req_options = "--qos=a"\nc.ProfilesSpawner.profiles = [("A", "a", S, {"req_options": "--nice=2\\n#SBATCH --exclusive"}), ("B", "b", S, {})]\n', of("a", "b")),
    "options: memory of them": Variant(HUB + 'c.SlurmSpawner.req_memory = "2G"\nc.SlurmSpawner.req_options = "--mem=8G"\n'),
    # classes
    "class: a default method": Variant(OWN + 'from traitlets import default\nclass Site(SlurmSpawner):\n    @default("req_partition")\n    def _p(self):\n        return "gpu"\nc.JupyterHub.spawner_class = Site\n'),
    "class: of a class": Variant(OWN + 'from traitlets import Unicode\nclass Base(SlurmSpawner):\n    req_qos = Unicode("b").tag(config=True)\n    req_partition = Unicode("x").tag(config=True)\nclass Site(Base):\n    req_partition = Unicode("y").tag(config=True)\nc.Base.req_memory = "3G"\nc.JupyterHub.spawner_class = Site\n', but=({'--qos: (none) -> b'}, {'--qos: (none) -> b'})),
    "class: of the user": Variant(OWN + 'from traitlets import default\nclass Site(SlurmSpawner):\n    @default("req_account")\n    def _a(self):\n        return "acc_" + self.user.name\nc.JupyterHub.spawner_class = Site\n', but=({'--account: (none) -> acc_ada'}, NONE)),
    "class: init": Variant(OWN + 'class Site(SlurmSpawner):\n    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n        self.req_memory = "7G"\nc.JupyterHub.spawner_class = Site\n'),
    "class: its own request": Variant(OWN + 'from traitlets import Unicode\nclass Site(SlurmSpawner):\n    req_feature = Unicode("v100").tag(config=True)\n    batch_script = Unicode("#!/bin/bash\\n#SBATCH -C {feature}\\n{cmd}\\n").tag(config=True)\nc.JupyterHub.spawner_class = Site\nc.Site.req_feature = "a100"\n'),
    "class: get_req_subvars": Variant(OWN + 'class Site(SlurmSpawner):\n    def get_req_subvars(self):\n        found = super().get_req_subvars()\n        found["partition"] = "sub"\n        return found\nc.JupyterHub.spawner_class = Site\n', but=({'--partition: sub -> (none)'}, {'--partition: sub -> (none)'})),
    "class: two profiles": Variant(PROFILES + OWN + 'from traitlets import Unicode\nclass A(SlurmSpawner):\n    req_partition = Unicode("a").tag(config=True)\nclass B(A):\n    req_reservation = Unicode("b").tag(config=True)\nc.A.req_memory = "1G"\nc.B.req_memory = "2G"\nc.ProfilesSpawner.profiles = [("A", "a", A, {}), ("B", "b", B, {"req_runtime": "30"})]\n', of("a", "b")),
    "class: a mixin": Variant(OWN + 'class Big:\n    req_memory = "64G"\nclass Site(Big, SlurmSpawner):\n    pass\nc.JupyterHub.spawner_class = Site\n', but=(NONE, {'--mem: (none) -> 65536M'})),
    "class: environment": Variant(OWN + 'class Site(SlurmSpawner):\n    @property\n    def req_prologue(self):\n        return "module load " + self.user.name\nc.JupyterHub.spawner_class = Site\n', but=({'did + module load ada'}, NONE)),
    # hooks
    "hook: options": Variant(HUB + 'def pre(s):\n    s.req_options = "--nice=7"\nc.Spawner.pre_spawn_hook = pre\n'),
    "hook: adds a variable": Variant(HUB + 'def pre(s):\n    s.environment["PROJECT"] = "p-" + s.user.name\nc.Spawner.pre_spawn_hook = pre\n'),
    "hook: time and GPUs": Variant(HUB + 'async def pre(s):\n    s.req_runtime = "2-0"\n    s.req_gres = "gpu:a100:2"\n    s.req_nprocs = "8"\nc.SlurmSpawner.pre_spawn_hook = pre\n', but=(NONE, {'--gres: gpu:a100:2 -> (none)', '--time: 2-00:00:00 -> (none)', '--cpus-per-task: 8 -> (none)'})),
    "hook: args": Variant(HUB + 'def pre(s):\n    s.args = ["--debug"]\n    s.default_url = "/lab"\nc.Spawner.pre_spawn_hook = pre\n'),
    "hook: cmd": Variant(HUB + 'def pre(s):\n    s.cmd = ["/opt/env/bin/jupyterhub-singleuser"]\nc.Spawner.pre_spawn_hook = pre\n'),
    "hook: prologue": Variant(HUB + 'def pre(s):\n    s.req_prologue = "module load " + s.user.name\n    s.req_epilogue = "echo over"\nc.Spawner.pre_spawn_hook = pre\n'),
    "hook: prefix": Variant(HUB + 'def pre(s):\n    s.exec_prefix = "sudo -n -u {username}"\nc.Spawner.pre_spawn_hook = pre\n'),
    "hook: template": Variant(HUB + 'def pre(s):\n    s.batch_script = "#!/bin/bash\\n#SBATCH -p hook\\n{cmd}\\n"\nc.Spawner.pre_spawn_hook = pre\n'),
    "hook: groups": Variant(HUB + 'c.Spawner.group_overrides = {"g": {"groups": ["lab"], "spawner_override": {"req_partition": "lab", "req_memory": "9G"}}}\n', (Choice(), Choice(groups=("lab",)))),
    "hook: auth state": Variant(HUB + 'def auth(s, state):\n    s.req_account = state["project"]\nc.Spawner.auth_state_hook = auth\n', (Choice(auth_state={"project": "cv"}),), but=({'--account: (none) -> cv'}, {'--account: (none) -> cv'})),
    "hook: with profiles": Variant(PROFILES + 'def pre(s):\n    s.environment["X"] = "1"\nc.Spawner.pre_spawn_hook = pre\nc.ProfilesSpawner.profiles = [("A", "a", S, {"req_memory": "1G"})]\n', of("a")),
    "hook: memory number": Variant(HUB + 'def pre(s):\n    s.req_memory = str(4 * 1024) + "M"\n    s.req_partition = ""\nc.SlurmSpawner.req_partition = "x"\nc.Spawner.pre_spawn_hook = pre\n'),
    # forms
    "form: numbers": Variant(FORM + 'c.Spawner.options_form = "<input name=nprocs>"\ndef read(form):\n    return {"nprocs": form["nprocs"][0], "memory": form["memory"][0] + "G"}\nc.Spawner.options_from_form = read\n', (Choice(form={"nprocs": ["4"], "memory": ["8"]}),)),
    "form: with a template": Variant(template("#SBATCH --mem={memory}G\n#SBATCH -t {hours}:00:00\n{cmd}", 'c.Spawner.options_form = "x"\nc.Spawner.options_from_form = lambda form: {k: v[0] for k, v in form.items()}'), (Choice(form={"memory": ["8"], "hours": ["3"]}),)),
    "form: applied": Variant(FORM + 'c.Spawner.options_form = "x"\nc.Spawner.options_from_form = lambda form: {"p": form["p"][0]}\ndef apply(s, options):\n    s.req_partition = options["p"]\nc.Spawner.apply_user_options = apply\n', (Choice(form={"p": ["gpu"]}),)),
    "form: a dropdown of partitions": Variant(FORM + 'c.SlurmSpawner.options_form = "<select name=partition><option>cpu<option>gpu</select>"\nc.SlurmSpawner.options_from_form = lambda form: {"partition": form["partition"][0]}\n', (Choice(form={"partition": ["gpu"]}), Choice())),
    "form: number fields": Variant(template("#SBATCH --mem={{memory}}G\n#SBATCH -c {{nprocs}}\n#SBATCH -t {{runtime}}:00:00\nexport OMP_NUM_THREADS={{nprocs}}\n{{cmd}}", 'c.SlurmSpawner.req_memory = "4"\nc.SlurmSpawner.req_nprocs = "1"\nc.SlurmSpawner.req_runtime = "2"\nc.Spawner.options_form = "x"\ndef read(form):\n    return {name: int(values[0]) for name, values in form.items()}\nc.Spawner.options_from_form = read\n'), (Choice(form={"memory": ["32"], "nprocs": ["4"], "runtime": ["12"]}), Choice(form={"memory": ["8"]}), Choice())),
    "form: a box for a GPU": Variant(template("{% if gres %}#SBATCH --gres={{gres}}\n{% endif %}#SBATCH -p {{partition}}\n{{cmd}}", 'c.SlurmSpawner.req_partition = "cpu"\nc.Spawner.options_form = "<input type=checkbox name=gpu>"\nc.Spawner.options_from_form = lambda form: {"gres": "gpu:1", "partition": "gpu"} if "gpu" in form else {}\n'), (Choice(form={"gpu": ["on"]}), Choice(form={"x": [""]}), Choice())),
    "form: two variables for GPUs": Variant(template("{% if gres %}#SBATCH --gres={{gres}}\n{% endif %}{% if ngpus %}#SBATCH --gpus-per-task={{ngpus}}\n{% endif %}{{cmd}}", 'c.SlurmSpawner.req_ngpus = "1"\nc.Spawner.options_form = "x"\nc.Spawner.options_from_form = lambda form: {"ngpus": form["n"][0]}\n'), (Choice(), Choice(form={"n": ["2"]}))),
    "form: of each user": Variant(FORM + 'async def page(spawner):\n    return "<p>" + spawner.user.name\ndef read(form, spawner):\n    return {"partition": form["p"][0], "who": spawner.user.name}\ndef pre(spawner):\n    spawner.environment["WHO"] = spawner.user_options.get("who", "")\nc.Spawner.options_form = page\nc.Spawner.options_from_form = read\nc.SlurmSpawner.pre_spawn_hook = pre\n', (Choice(form={"p": ["gpu"]}), Choice())),
    "form: Jinja and a hook": Variant(template("#SBATCH -p {{partition}}\n{% if node %}#SBATCH -w {{node}}\n{% endif %}{{prologue}}\n{{cmd}}\n{{epilogue}}", 'from jinja2 import Template\nc.SlurmSpawner.req_partition = "cpu"\nc.Spawner.options_form = lambda spawner: Template("{{n}}").render(n=1)\nc.Spawner.options_from_form = lambda form: {"node": form["node"][0], "module": form["module"][0]}\ndef pre(spawner):\n    spawner.req_prologue = "module load " + spawner.user_options.get("module", "base")\nc.BatchSpawnerBase.pre_spawn_hook = pre\n'), (Choice(form={"node": ["n1"], "module": ["cuda"]}), Choice())),
    "form: a text with blanks for a hook": Variant(FORM + 'c.Spawner.options_form = "x"\nc.Spawner.options_from_form = lambda form: {"note": form["note"][0]}\ndef pre(spawner):\n    spawner.environment["NOTE"] = spawner.user_options.get("note", "")\nc.Spawner.pre_spawn_hook = pre\n', (Choice(form={"note": ["it's \"mine\" $HOME"]}),)),
    "form: a text with blanks in the template": Variant(template("export NOTE='{{note}}'\n{{cmd}}", 'c.Spawner.options_form = "x"\nc.Spawner.options_from_form = lambda form: {"note": form["note"][0]}\n'), (Choice(form={"note": ["a b"]}),), refused=("letters, digits", "letters, digits")),
    "form: what the template does not name": Variant(template("#SBATCH -p {partition}\n{cmd}", 'c.SlurmSpawner.req_partition = "cpu"\nc.Spawner.options_form = "x"\nc.Spawner.options_from_form = lambda form: {name: values[0] for name, values in form.items()}\n'), (Choice(form={"account": ["phys"], "qos": ["low"], "partition": ["gpu"]}), Choice(form={"memory": ["as much as there is"]}))),
    "form: with options": Variant(FORM + 'c.SlurmSpawner.req_options = "--qos=normal --nice=5"\nc.Spawner.options_form = "x"\nc.Spawner.options_from_form = lambda form: {"options": form["options"][0]}\ndef pre(spawner):\n    if not spawner.user_options: spawner.req_options += " --nice=6"\nc.Spawner.pre_spawn_hook = pre\n', (Choice(form={"options": ["--nice=7"]}), Choice())),
    "form: options of the command line": Variant(FORM + 'c.SlurmSpawner.exec_prefix = ""\nc.SlurmSpawner.batch_submit_cmd = "sudo -E -u {username} /opt/slurm/bin/sbatch --parsable -p late"\nc.Spawner.options_form = "x"\nc.Spawner.options_from_form = lambda form: {"partition": form["p"][0]}\n', (Choice(form={"p": ["gpu"]}), Choice())),
    "form: of groups": Variant(FORM + 'c.SlurmSpawner.req_memory = "1G"\nc.Spawner.options_form = "x"\nc.Spawner.options_from_form = lambda form: {"partition": form["p"][0]}\nc.Spawner.group_overrides = {"g": {"groups": ["lab"], "spawner_override": {"req_memory": "9G", "req_partition": "lab"}}}\n', (Choice(), Choice(groups=("lab",)), Choice(form={"p": ["gpu"]}, groups=("lab",)))),
    "form: a class with values": Variant(OWN + 'from traitlets import Unicode\nclass Site(SlurmSpawner):\n    req_partition = Unicode("y").tag(config=True)\nc.JupyterHub.spawner_class = Site\nc.Site.req_memory = "3G"\nc.Site.options_form = "x"\nc.Site.options_from_form = lambda form: {"memory": form["memory"][0]}\n', (Choice(), Choice(form={"memory": ["6G"]}))),
    "form: of the class": Variant(OWN + 'from traitlets import Unicode\nclass Site(SlurmSpawner):\n    req_project = Unicode("none").tag(config=True)\n    batch_script = Unicode("#!/bin/bash\\n#SBATCH -p {partition} -t {hours}:00:00\\nexport P={project}\\n{cmd}\\n").tag(config=True)\n    def _options_form_default(self):\n        return "<p>" + self.user.name\n    def options_from_form(self, form):\n        return {"hours": form["hours"][0]}\nc.JupyterHub.spawner_class = Site\nc.Site.req_project = "maths"\nc.SlurmSpawner.req_partition = "cpu"\ndef pre(spawner):\n    spawner.req_project += "-" + spawner.user.name\nc.Spawner.pre_spawn_hook = pre\n', (Choice(form={"hours": ["4"]}),)),
    "form: a method of the class": Variant(OWN + 'from traitlets import default\nclass Site(SlurmSpawner):\n    async def get_options_form(self):\n        return "x"\n    def options_from_form(self, form):\n        return {"partition": form["p"][0]}\n    @default("req_account")\n    def _account(self):\n        return "of-" + self.user.name\n    exec_prefix = "sudo -n -E -u {username}"\nc.JupyterHub.spawner_class = Site\nc.Site.req_runtime = "30"\n', (Choice(form={"p": ["gpu"]}), Choice()), but=({"--account: (none) -> of-ada"}, {"--account: (none) -> of-ada"})),
    "form: empty": Variant(FORM + 'c.Spawner.options_form = ""\n'),
    # names, templates of profiles, wrappers
    "names: of profiles": Variant(PROFILES + 'c.ProfilesSpawner.profiles = [("A", "a", S, {"req_ngpu": "1", "image": "x", "req_memory": "2G"}), ("B", "b", S, dict(req_gpus="2", req_partition="b"))]\n', of("a", "b")),
    "profile: two templates": Variant(PROFILES + 'T = "#!/bin/bash\\n#SBATCH -p %s\\n#SBATCH --mem={memory}G\\n%s\\n{cmd}\\n"\nc.ProfilesSpawner.profiles = [("A", "a", S, dict(req_memory="2", batch_script=T % ("x", "module load x"))), ("B", "b", S, dict(req_memory="4", batch_script=T % ("y", "module load y"))), ("C", "c", S, {})]\n', of("a", "b", "c")),
    "wrap: child class": Variant('from wrapspawner import WrapSpawner\nfrom batchspawner import SlurmSpawner\nc.JupyterHub.spawner_class = WrapSpawner\nc.WrapSpawner.child_class = SlurmSpawner\nc.WrapSpawner.child_config = {"req_memory": "2G", "req_gres": "gpu:1"}\n', refused=("cannot start this server", "")),
}  # fmt: skip
OURS = (
    "--comment:",
    *("--nodes: (none) -> 1", "--chdir: (none) -> ~", "--export: ", "--no-requeue: (none) -> "),
    *("--get-user-env: L -> (none)", "did - srun", "said - jupyterhub-singleuser ended gracefully"),
    *("--job-name: spawner-jupyterhub -> jupyterhub", "--job-name: (none) -> jupyterhub"),
    *("--output: ~/jupyterhub_slurmspawner_%j.log -> ", "--output: (none) -> ~/jupyterhub-%j.log"),
    *(
        "run by: sudo -E -u ada sbatch -> sudo -n -E -u ada sbatch",
        "run by: sudo -E -u ada /opt/slurm/bin/sbatch -> sudo -n -E -u ada /opt/slurm/bin/sbatch",
    ),
)
"""How a difference begins that every job has; ``tests/migrate/test_both_ways.py`` says which has which."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VARIANTS)
def test_no_job_is_another_one(name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, or refused by name."""
    variant = VARIANTS[name]
    at = WAYS.index(way)
    old, folder = tmp_path / "old.py", tmp_path / "new"
    folder.mkdir()
    old.write_text(variant.text, "utf-8")
    if at:
        config = written_in_place(migrate(old), old, folder)
        config.write_text(config.read_text("utf-8") + OF_ALL, "utf-8")
    else:
        config = with_one_line_changed(old, folder)
    has_form = any(choice.form for choice in variant.choices)
    for number, choice in enumerate(variant.choices):
        was_at, now_at = (tmp_path / f"{number}{part}" for part in ("was", "now"))
        was_at.mkdir()
        now_at.mkdir()
        ours = replace(choice, profile="server") if at and not (choice.profile or has_form) else choice
        if variant.refused[at]:
            with pytest.raises((GPUSpawnerError, HTTPError), match=variant.refused[at]):
                asyncio.run(new_job(config, ours, now_at / "home", monkeypatch))
            continue
        now = asyncio.run(new_job(config, ours, now_at / "home", monkeypatch))
        was = asyncio.run(old_job(old, choice, was_at / "home", monkeypatch))
        found = {line for line in differences(was, now) if not line.startswith(OURS)}

        assert found == variant.but[at], choice
