"""A site's own batch_script gives the job that batchspawner gives: its options, its lines, and what they do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyterhub_gpuspawner.batch.launcher import zipapp
from jupyterhub_gpuspawner.batch.template import render_template
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.resources import Environment
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site
from jupyterhub_gpuspawner.slurm.sbatch_options import options_in
from jupyterhub_gpuspawner.wire.documents import LaunchPlan
from tests.fixtures.batchspawners import rendered, spawner_of

OURS = frozenset(["chdir", "comment", "export", "nodes"])
"""Options that are added where a template has none."""


def ours(settings: dict[str, Any], profile: object = None, **options: str) -> str:
    """The script of this package, of a profile if there is one."""
    profiles = [profile or ("A", "a", "batchspawner.SlurmSpawner", {})]
    sections = {"SlurmSpawner": settings, "ProfilesSpawner": {"profiles": profiles}}
    spawner = Site(Config(sections), GPUProfilesSpawner).spawner(SOMEBODY.name)
    spawner.prepare(spawner.resolve({"profile": "a", **options}))
    return str(spawner.batch_job(SOMEBODY).script)


def options(script: str) -> dict[str, str]:
    """Those of a script's head; names of variables of the environment are no part of the comparison."""
    return {name: "names" if name == "export" else value for name, value in options_in(script)}


def lines(script: str) -> list[str]:
    """The site's own lines, with a word for the server."""
    body = script.split("gpuspawner_fault=script\n")[-1]
    call = '/bin/sh "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- '
    return [line.replace(call, "") for line in body.splitlines() if line.strip() and not line.lstrip().startswith("#")]


MEMORY = "#SBATCH --mem={{memory}}\n"
BOTH = (
    "{% if gres %}#SBATCH --gres={{gres}}\n{% elif ngpus %}#SBATCH --gpus={{ngpus}}\n{% endif %}"
    "{% if ngpus %}#SBATCH --gpus-per-node={{ngpus}}\n{% endif %}#SBATCH --job-name=n{{ngpus}}-{{gres}}"
)
TEMPLATES = {
    "memory in G": ("#SBATCH --mem={memory}G", {"req_memory": "4"}),
    "memory in G, jinja": ("#SBATCH --mem={{ memory }}G", {"req_memory": "4"}),
    "memory in M": ("#SBATCH --mem={memory}M", {"req_memory": "4000"}),
    "memory in gb": ("#SBATCH --mem={memory}gb", {"req_memory": "4"}),
    "memory with its unit": ("#SBATCH --mem={memory}", {"req_memory": "4G"}),
    "memory with a small unit": ("#SBATCH --mem={memory}", {"req_memory": "4g"}),
    "memory without a unit": ("#SBATCH --mem={memory}", {"req_memory": "4000"}),
    "memory computed": ("#SBATCH --mem={{ memory|int * 2 }}G", {"req_memory": "4"}),
    "memory of one CPU": ("#SBATCH --mem-per-cpu={memory}G -c {nprocs}", {"req_memory": "4", "req_nprocs": "2"}),
    "hours": ("#SBATCH --time={runtime}:00:00", {"req_runtime": "8"}),
    "hours, jinja": ("#SBATCH --time={{runtime}}:00:00", {"req_runtime": "48"}),
    "minutes": ("#SBATCH --time={runtime}:00", {"req_runtime": "90"}),
    "hours without days": ("#SBATCH -t {runtime}", {"req_runtime": "48:00:00"}),
    "days": ("#SBATCH -t {runtime}", {"req_runtime": "1-0"}),
    "bare minutes": ("#SBATCH -t {runtime}", {"req_runtime": "480"}),
    "a digit of the time": ("#SBATCH --time={{runtime[0]}}", {"req_runtime": "24:00:00"}),
    "a part of the time": ("#SBATCH --time={{runtime.split(':')[0]}}:30:00", {"req_runtime": "24:00:00"}),
    "no time": ("{% if runtime %}#SBATCH --time={{runtime}}\n{% endif %}", {}),
    "an older name": ("#SBATCH --partition={queue} --mem={memory}", {"req_queue": "q", "req_memory": "1G"}),
    "generic resources": ("#SBATCH --gres={gres} --job-name=nb-{username}", {"req_gres": "gpu:a100:2"}),
    "a count of GPUs": ("#SBATCH --gres=gpu:{ngpus} --mem={memory}", {"req_ngpus": "2", "req_memory": "9G"}),
    **{
        f"{how} where a template has both": (BOTH, settings)
        for how, settings in {
            "generic resources": {"req_gres": "gpu:a100:2"},
            "others beside": {"req_gres": "gpu:2,nvme:1", "req_ngpus": ""},
            "a count of GPUs": {"req_ngpus": "2"},
            "both": {"req_gres": "gpu:2", "req_ngpus": "2"},
            "neither": {"req_gres": ""},
        }.items()
    },
    "options of one line": ("#SBATCH {options}", {"req_options": "--account=a -C k80"}),
    "options of several lines": (
        "#SBATCH {options}",
        {"req_options": "--account=a1\n#SBATCH --qos=normal\n#SBATCH --constraint=k80"},
    ),
    "options with a comment": ("#SBATCH {options}", {"req_options": "--qos=normal # as ever\n#SBATCH -C k80"}),
    "options with a blank": ("#SBATCH {options}", {"req_options": '--mail-user="a b"\n#SBATCH   --nice=3\n'}),
    "options that are comments": (
        "  #SBATCH --chdir=/scratch --workdir=/scratch\n#SBATCH {options}",
        {"req_options": "--account=a1\n  #SBATCH --qos=normal\n##SBATCH --nice=2\n#SBATCH -C k80"},
    ),
    "a folder of its own": ("#SBATCH -D /scratch --output=x.log", {}),
    "a condition": ("{% if memory %}" + MEMORY + "{% endif %}", {"req_memory": "4", "req_account": ""}),
}


@pytest.mark.parametrize(("head", "settings"), TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("of_profile", [False, True])
def test_an_unchanged_job_is_the_same(head: str, settings: dict[str, str], *, of_profile: bool) -> None:
    """Options of sbatch and shell lines; requests are the hub's, or those of a profile."""
    template = f"#!/bin/bash\n{head}\nmodule load a\ncd /scratch\n{{cmd}}\necho $?\n"
    template = template.replace("{cmd}", "{{cmd}}") if "{{" in head or "{%" in head else template
    was = rendered(spawner_of(batch_script=template, **settings))
    if of_profile and "req_queue" not in settings:
        now = ours({"batch_script": template}, ("A", "a", "batchspawner.SlurmSpawner", settings))
    else:
        now = ours({"batch_script": template, **settings})

    added = {"chdir": SOMEBODY.home, "comment": "x", "export": "names", "nodes": "1"}
    assert {**added, **options(was), "comment": "x"} == {**options(now), "comment": "x"}
    assert lines(now) == lines(was)


WRONG = {
    "req_options": ("gpu", "c.SlurmSpawner.req_options"),
    "req_memory": ("much", "c.SlurmSpawner.req_memory"),
    "req_gres": ("gpu:a:b:c", "c.SlurmSpawner.req_gres"),
    "req_ngpus": ("many", "c.SlurmSpawner.req_ngpus"),
    "req_qos": ("a b", "c.SlurmSpawner.req_qos"),
}


@pytest.mark.parametrize(("name", "value", "where"), [(name, *rest) for name, rest in WRONG.items()], ids=WRONG)
def test_a_setting_that_cannot_be_requested_is_named(name: str, value: str, where: str) -> None:
    """As the admin wrote it."""
    with pytest.raises(ConfigError) as refused:
        ours({name: value})

    assert refused.value.where == where


RANGE = {"display_name": "A", "slug": "a", "slurm": {"partition": "cpu"}}
GB, HOURS = {"sets": "slurm.memory", "unit": "G"}, {"sets": "slurm.time", "unit": "hours"}
CHOSEN = {
    "G": ("--mem={memory}G", {"range": {"min": 1, "max": 64, **GB}}, 8, "--mem=8G"),
    "T": ("--mem={memory}G", {"range": {"min": 1, "max": 4, "sets": "slurm.memory", "unit": "T"}}, 1, "--mem=1024G"),
    "M": ("--mem={memory}M", {"range": {"min": 1, "max": 64, **GB}}, 8, "--mem=8192M"),
    "with its unit": ("--mem={memory}", {"range": {"min": 1, "max": 9, **GB}}, 8, "--mem=8G"),
    "hours": ("-t {runtime}:00:00", {"range": {"min": 1, "max": 99, **HOURS}}, 30, "-t 30:00:00"),
    "a time": ("-t {runtime}", {"range": {"min": 1, "max": 99, **HOURS}}, 30, "-t 1-06:00:00"),
    "a choice as it is written": ("--mem={memory}G", {"choices": {"8": {"slurm": {"memory": "8"}}}}, "8", "--mem=8G"),
    "a choice with its unit": ("--mem={memory}G", {"choices": {"8": {"slurm": {"memory": "8G"}}}}, "8", "--mem=8G"),
}  # fmt: skip


@pytest.mark.parametrize(("head", "option", "value", "expected"), CHOSEN.values(), ids=CHOSEN)
def test_what_a_user_chose_has_the_unit_of_the_template(head: str, option: Any, value: Any, expected: str) -> None:
    """Else it is as sbatch reads it."""
    template = f"#!/bin/bash\n#SBATCH {head}\n{{cmd}}\n"
    script = ours({"batch_script": template}, {**RANGE, "profile_options": {"o": option}}, o=value)
    assert f"#SBATCH {expected}\n" in script


def test_options_of_a_profile_replace_those_of_the_site() -> None:
    """As a setting of a profile does in wrapspawner."""
    settings = {"batch_script": "#!/bin/bash\n#SBATCH {options}\n{cmd}\n", "req_options": "--qos=site --nice=3"}
    profile = ("A", "a", "batchspawner.SlurmSpawner", {"req_options": "--qos=own"})
    found = options(ours(settings, profile))
    assert (found["qos"], found.get("nice")) == ("own", None)


# What the lines do, run by bash with a launcher that says how it was called.

LAUNCHER = (
    "import json, os, sys\n"
    "print(json.dumps([sys.argv[1], os.path.isfile(sys.argv[2]), *sys.argv[3:], os.environ.get('SITE')]), flush=True)\n"
)
WORDS = ("srv", "a b", "it's", "$(x)", 'q"', "*")
CALLED = {
    "plain": "{cmd}",
    "an argument more": "{cmd}",
    "single quotes": "bash -c 'SITE=1; exec {cmd}'",
    "single quotes, twice": """bash -c 'bash -c "exec $*" x {cmd} >/dev/null; {cmd}'""",
    "su": "su_() { shift; bash -c \"$@\"; }; su_ -c '{cmd}'",
    "a quoted here-document": "bash <<'EOF'\ncd /\n{cmd}\nEOF",
    "a here-document": "bash <<EOF\ncd /\n{cmd}\nEOF",
    "a function": "serve() {\n  {cmd}\n}\nserve",
    "a function in a file": "cat > ~/f.sh <<'EOF'\nserve() {\n  {cmd}\n}\nEOF\n. ~/f.sh\nserve",
    "a script that is run": "cat > ~/f.sh <<'EOF'\n#!/bin/bash\nexec {cmd}\nEOF\nchmod +x ~/f.sh\n~/f.sh",
    "a script that is sourced": "cat > ~/f.sh <<'EOF'\n{cmd}\nEOF\nsource ~/f.sh",
    "a subshell": "(cd / && {cmd})",
    "in the background": "{cmd} &\nwait $!",
    "eval": "eval '{cmd}'",
    "a step": "step() { \"$@\"; }\nstep {cmd}",
    "strict": "set -euo pipefail\n{cmd}",
}  # fmt: skip


def run(folder: Path, template: str, **changed: Any) -> subprocess.CompletedProcess[str]:
    """The script of a template, run by bash in an empty folder for temporary files."""
    script = render_template(
        template.replace("{cmd}", "{{cmd}}").replace("{prologue}", "{{prologue}}"),
        {"homedir": str(folder), "partition": "", "prologue": changed.pop("prologue", "")},
        launcher=zipapp({"__main__.py": LAUNCHER}),
        plan=LaunchPlan(),
        command=ServerCommand(changed.pop("words", WORDS)),
        tag="tag",
        environment=changed.pop("environment", None),
    ).script
    (folder / "job.sh").write_text(script, encoding="utf-8")
    (folder / "tmp").mkdir()
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder / "tmp"), "HOME": str(folder), "SITE": "s"}
    done = subprocess.run(
        ["bash", str(folder / "job.sh")], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert [*(folder / "tmp").iterdir()] == []
    return done


@pytest.mark.parametrize("body", CALLED.values(), ids=CALLED)
def test_the_server_is_called_wherever_cmd_is(body: str, tmp_path: Path) -> None:
    """With its words as they are, whatever quotes are around them."""
    words = ("srv", "a b", "(x)", 'q"', "*") if "'{cmd}" in body or "<<EOF" in body or "bash -c" in body else WORDS
    done = run(tmp_path, f"#!/bin/bash\n#SBATCH --mem=1G\nSITE=site\n{body}\n", words=words)
    called = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, done.stderr, called[:-1]) == (0, "", ["--plan", True, "--", *words])


APPTAINER = """\
apptainer() {{
    shift 2
    unshare --mount sh -c 'mount -t tmpfs none "$0" && PATH={image} exec "$@"' {node} "$@"
}}
apptainer exec lab.sif {{cmd}}
"""
"""Runs a command with an image's programs alone, and without a folder of the node, as Apptainer does."""
NONE = "gpuspawner: no Python where the server is to run: neither {node}/python3 nor python3\n"


@pytest.mark.parametrize("has_python", [True, False])
def test_in_a_container_the_launcher_runs_with_the_images_python(has_python: bool, tmp_path: Path) -> None:
    """The one that the job has found on its node is not there; without any, the log says so."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a mount namespace")
    node, image = tmp_path / "node", tmp_path / "image"
    for folder in (node, image) if has_python else (node,):
        folder.mkdir()
        shutil.copy("/usr/bin/python3", folder / "python3")
    template = f"#!/bin/bash\n{APPTAINER.format(image=image, node=node)}"
    environment = Environment(variables={"GPUSPAWNER_PYTHON": f"{node}/python3"})
    done = run(tmp_path, template, words=("srv",), environment=environment)

    called = [json.loads(line) for line in done.stdout.splitlines()]
    expected = (0, "", [["--plan", True, "--", "srv", "s"]]) if has_python else (127, NONE.format(node=node), [])
    assert (done.returncode, done.stderr, called) == expected


TRAPS = {
    "a command": ("trap 'echo own' EXIT\n{cmd}", 0, ["own"]),
    "a function": ("clean() { echo own; }\ntrap clean EXIT\n{cmd}", 0, ["own"]),
    "its exit status": ("trap 'echo $?' EXIT\n{cmd}\nexit 3", 3, ["3"]),
    "another exit status": ("trap 'exit 5' EXIT\n{cmd}\nexit 3", 5, []),
    "several lines": ("trap 'echo a\necho b' 0\n{cmd}", 0, ["a", "b"]),
    "several signals": ("trap 'echo own' EXIT TERM INT\n{cmd}", 0, ["own"]),
    "the last counts": ("trap 'echo a' EXIT\ntrap 'echo b' EXIT\n{cmd}", 0, ["b"]),
    "removed": ("trap 'echo a' EXIT\ntrap - EXIT\n{cmd}", 0, []),
    "of a subshell": ("(trap 'echo sub' EXIT; true)\n{cmd}\ntrap 'echo own' EXIT", 0, ["sub", "own"]),
    "under set -e": ("set -eu\ntrap 'echo own' EXIT\n{cmd}\nfalse\necho never", 1, ["own"]),
    "in a function": ("begin() { trap 'echo own' EXIT; }\nbegin\n{cmd}", 0, ["own"]),
    "in a file": ("echo \"trap 'echo own' EXIT\" > $TMPDIR/f\n. $TMPDIR/f\nrm $TMPDIR/f\n{cmd}", 0, ["own"]),
    "with ours": ("trap 'gpuspawner_end; echo own' EXIT\n{cmd}", 0, ["own"]),
    "beside one for a signal": ("trap 'echo own' EXIT\ntrap 'echo term' TERM\n{cmd}", 0, ["own"]),
    "its PATH": ("PATH=/bin\ntrap 'echo $PATH' EXIT\n{cmd}", 0, ["/bin"]),
}


@pytest.mark.parametrize(("body", "status", "said"), TRAPS.values(), ids=TRAPS)
def test_a_trap_of_the_site_runs_and_nothing_is_left(body: str, status: int, said: list[str], tmp_path: Path) -> None:
    """The folder of the launcher is removed all the same: :func:`run` looks."""
    done = run(tmp_path, f"#!/bin/bash\n{body}\n", words=("srv",))
    plain = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    assert (done.returncode, plain) == (status, said)


STRICT = "#!/bin/bash\nset -euo pipefail\n{prologue}\n{cmd}\n"
ENDS = {
    "a command": (STRICT, "false", "of the script failed, which ends the job: false"),
    "a pipe": (STRICT, "false | true", "of the script failed, which ends the job: true"),
    "an unbound variable": (STRICT, "echo $NOT_SET", "NOT_SET: unbound variable"),
    "a missing program": (STRICT, "no-such-program", "of the script failed, which ends the job: no-such-program"),
    "its own exit": (STRICT, "exit 7", ""),
    "of the template": ("#!/bin/bash\nset -e\nfalse\n{prologue}\n{cmd}\n", "", "which ends the job: false"),
    "goes on": ("#!/bin/bash\n{prologue}\n{cmd}\n", "false", None),
    "goes on, tested": (STRICT, "false || true", None),
    "goes on, in a condition": (STRICT, "if false; then :; fi", None),
    "goes on, off": (STRICT, "set +e\nfalse", None),
}


@pytest.mark.parametrize(("template", "prologue", "said"), ENDS.values(), ids=ENDS)
def test_a_line_that_fails_ends_the_job_as_it_did(
    template: str, prologue: str, said: str | None, tmp_path: Path
) -> None:
    """Under ``set -e`` of the template; the log names it."""
    done = run(tmp_path, template, prologue=prologue, words=("srv",))
    assert ('"srv"' in done.stdout) == (said is None)
    assert (done.returncode == 0) == (said is None)
    assert said is None or said in done.stderr
    assert said is not None or "of the script failed" not in done.stderr


@pytest.mark.parametrize(("setup", "ends"), [("false", False), ("set -e; false", True), ("false || exit 1", True)])
def test_a_line_of_a_profiles_setup_ends_the_job_if_it_says_so(setup: str, *, ends: bool, tmp_path: Path) -> None:
    """As the guide has it."""
    environment = Environment.model_validate({"setup": setup})
    done = run(tmp_path, "#!/bin/bash\n{cmd}\n", environment=environment, words=("srv",))
    assert ('"srv"' not in done.stdout, done.returncode) == (ends, int(ends))
