"""An admin's own batch_script: filled in, mended, explained."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.batch.template import Rendered, option_word, render_template
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.resources import Environment
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.slurm.job import tag
from jupyterhub_gpuspawner.slurm.sbatch_options import options_in
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

DATA = Path(__file__).parents[1] / "data"
TAG = tag("hub", "ada", "")
VARIABLES = {
    "partition": "gpu",
    "runtime": "8:00:00",
    "memory": "32000M",
    "nprocs": "40",
    "gres": "",
    "account": "",
    "qos": "",
    "reservation": "",
    "options": "",
    "prologue": "",
    "epilogue": "",
    "homedir": "/home/ada",
    "username": "ada",
    "keepvars": "HOME,JUPYTERHUB_API_TOKEN",
    "srun": "srun",
}
CALL = '/bin/sh "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- jupyterhub-singleuser'


def _render(template: str, **changed: Any) -> Rendered:
    variables = {**VARIABLES, **{key: changed.pop(key) for key in list(changed) if key in VARIABLES}}
    settings: dict[str, Any] = {
        "launcher": b"the launcher's zipapp",
        "plan": LaunchPlan(),
        "command": ServerCommand(("jupyterhub-singleuser",)),
        "tag": TAG,
    }
    return render_template(template, variables, **{**settings, **changed})


def _head(rendered: Rendered) -> list[str]:
    return rendered.script.split("# --- gpuspawner")[0].splitlines()


@pytest.mark.parametrize(("name", "line"), [("lab-7", "--job-name=lab-7"), ("lab 7", '--job-name="lab 7"')])
def test_a_job_name_is_one_option(name: str, line: str) -> None:
    """Also with a blank in it, as in the hub's own script."""
    assert f"#SBATCH {line}" in _head(_render("#!/bin/bash\n{cmd}\n", job_name=name))


def test_the_workshops_template_runs_on_todays_slurm() -> None:
    """Templates as published, with {cmd} added: compared whole, and every correction is noted."""
    rendered = _render((DATA / "templates" / "workshop.txt").read_text(encoding="utf-8"))
    assert rendered.script == (DATA / "scripts" / "workshop.sh").read_text(encoding="utf-8")
    assert rendered.notes == (
        "--workdir=/home/ada is replaced by --chdir=/home/ada, the option's current name.",
        "--uid=ada is left out: only root may use it, and the job is submitted as its user.",
        "An empty #SBATCH line is left out.",
    )
    subprocess.run(["bash", "-n"], input=rendered.script, text=True, check=True)


def test_batchspawners_own_template_is_filled_in() -> None:
    """Its jinja2, its srun, its prologue; nothing to correct."""
    rendered = _render(
        (DATA / "templates" / "batchspawner.txt").read_text(encoding="utf-8"), gres="gpu:1", prologue="module load a\nb"
    )
    assert rendered.script == (DATA / "scripts" / "batchspawner.sh").read_text(encoding="utf-8")
    assert rendered.notes == ()
    subprocess.run(["bash", "-n"], input=rendered.script, text=True, check=True)


@pytest.mark.parametrize(
    ("line", "replacement", "notes"),
    [
        ("#SBATCH --workdir /x", "#SBATCH --chdir=/x", ["--workdir=/x is replaced by --chdir=/x"]),
        ("#SBATCH --uid ada --mem=1G", "#SBATCH --mem=1G", ["--uid=ada is left out: only root may use it"]),
        ("#SBATCH --gid=g", None, ["--gid=g is left out: only root may use it"]),
        ("#SBATCH", None, ["An empty #SBATCH line"]),
        ("#SBATCH  ", None, ["An empty #SBATCH line"]),
        ("#SBATCH --gres=", None, ["--gres is left out: it has no value"]),
        ("#SBATCH --account {account}", None, ["--account is left out: it has no value"]),
        ('#SBATCH --account="{account}"', None, ["--account is left out: it has no value"]),
        ("#SBATCH --exclusive", "#SBATCH --exclusive", []),
        ("#SBATCH --nice", "#SBATCH --nice", []),
        ('#SBATCH --output="a b.log" -p gpu', '#SBATCH --output="a b.log" -p gpu', []),
        ("#SBATCH --comment=mine", None, ["--comment=mine is left out: the hub uses a job's comment"]),
        ("#SBATCH --comment={tag}", None, []),
        ('#SBATCH --comment="of HPC\\ada"', None, ['--comment="of HPCada" is left out']),
        ('#SBATCH --wckey="HPC\\ada"', '#SBATCH --wckey="HPC\\ada"', []),
        ("#SBATCH --mem=1G # enough", "#SBATCH --mem=1G # enough", []),
        ("# SBATCH --uid=ada", "# SBATCH --uid=ada", []),
        ("##SBATCH --uid=ada", "##SBATCH --uid=ada", []),
    ],
)
def test_what_todays_slurm_does_not_take_is_mended_and_told(
    line: str, replacement: str | None, notes: list[str]
) -> None:
    """One sentence each; everything else stays as it is."""
    rendered = _render(f"#!/bin/bash\n{line}\n{{cmd}}\n")
    directives = [
        f"#SBATCH --comment={TAG}",
        "#SBATCH --nodes=1",
        *([] if "workdir" in line else ["#SBATCH --chdir=/home/ada"]),
        "#SBATCH --export=ALL",
        *([replacement] if replacement else []),
    ]
    assert _head(rendered) == ["#!/bin/bash", *directives]
    assert [note[: len(beginning)] for note, beginning in zip(rendered.notes, notes, strict=True)] == notes


@pytest.mark.parametrize("value", ["a b", 'a "b', "it's", "a\\b", 'a\\"b', "a#b", "a\tb", "a|b", "ü"])
def test_a_line_that_is_mended_keeps_any_value_of_its_other_options(value: str) -> None:
    """Quoted so that it is read as it was; so is one that is left out, and the user's home."""
    line = f"#SBATCH {option_word('uid', value)} {option_word('job-name', value)}"
    rendered = _render(f"#!/bin/bash\n{line}\n{{cmd}}\n", homedir=value.replace("\t", " "))
    options = dict(options_in(rendered.script))

    assert (options["job-name"], options["chdir"]) == (value, value.replace("\t", " "))
    assert len(rendered.notes) == 1


@pytest.mark.parametrize("nodes", ["--nodes=2", "-N 2", "-N2", "--nodes 2"])
def test_a_template_that_names_its_nodes_keeps_them(nodes: str) -> None:
    """Otherwise a job could spread over several."""
    assert "#SBATCH --nodes=1" not in _head(_render(f"#!/bin/bash\n#SBATCH {nodes}\n{{cmd}}\n"))


@pytest.mark.parametrize("export", ["--export=NIL", "--export=ALL,A=1", "--export HOME,PATH"])
def test_a_template_that_names_what_is_exported_keeps_it(export: str) -> None:
    """Otherwise Slurm 26.05 drops what `--export-file` gives: the job would have no token."""
    added = [line for line in _head(_render(f"#!/bin/bash\n#SBATCH {export}\n{{cmd}}\n")) if "export" in line]
    assert added == [f"#SBATCH {export}"]


@pytest.mark.parametrize(
    ("template", "added"),
    [
        ("#!/bin/bash\n{cmd}", ["--gres=gpu:k80:1", "--reservation=ml-hpc-1"]),
        ("#!/bin/bash\n#SBATCH --gres={gres}\n{cmd}", ["--reservation=ml-hpc-1"]),
        ("#!/bin/bash\n#SBATCH --gpus=1 --reservation=x\n{cmd}", []),
    ],
)
def test_what_a_profile_promises_and_the_template_leaves_out_is_added_and_told(template: str, added: list[str]) -> None:
    """A GPU profile is not submitted as a CPU job, and a course runs in its reservation."""
    rendered = _render(template, gres="gpu:k80:1", reservation="ml-hpc-1")
    assert rendered.notes == tuple(
        f"{option} is added: the profile requests it, and the template does not." for option in added
    )
    assert [line for line in _head(rendered) if line[8:] in added] == [f"#SBATCH {option}" for option in added]


def test_a_policy_that_only_slurm_can_keep_is_asked_for_in_a_template_too() -> None:
    """Unless the template sets it itself."""
    rendered = _render("#!/bin/bash\n#SBATCH --gres={gres}\n{cmd}", gres="gpu:1", plan=LaunchPlan(policy="restricted"))
    assert rendered.notes == ("--gres-flags=enforce-binding is added: the policy restricted requires it.",)
    assert {"#SBATCH --ntasks=1", "#SBATCH --gres-flags=enforce-binding"} <= {*_head(rendered)}


@pytest.mark.parametrize(
    ("line", "added"),
    [
        ("--nodes=2", ["--ntasks=2"]),
        ("-N 2 --exclusive", ["--ntasks=2"]),
        ("--nodes=1-2", []),
        ("--ntasks=4", []),
        ("--ntasks-per-node=4", []),
        ("--tasks-per-node=4", []),
    ],
)
def test_a_strict_policy_leaves_a_templates_own_nodes_and_tasks_as_many_as_they_are(
    line: str, added: list[str]
) -> None:
    """With one task Slurm gives a job of two nodes one of them, and one of four tasks a quarter of its cores."""
    template = f"#!/bin/bash\n#SBATCH --gres={{gres}}\n#SBATCH {line}\n{{cmd}}"
    rendered = _render(template, gres="gpu:1", plan=LaunchPlan(policy="restricted"))
    assert [option[8:] for option in _head(rendered) if "tasks=" in option and line not in option] == added
    assert ("unset SLURM_NTASKS SLURM_NPROCS" in rendered.script.splitlines()) is bool(added)


def test_the_profiles_environment_is_set_up_before_the_templates_commands() -> None:
    """Modules and variables too; a container holds the server."""
    environment = Environment.model_validate({"variables": {"A": "1"}, "container": "/a.sif"})
    script = _render("#!/bin/bash\necho own\n{cmd}\n", environment=environment, gres="gpu:1").script
    assert script.index("export A=1") < script.index("GPUSPAWNER_PYTHON=$") < script.index("echo own")
    assert script.endswith("-- apptainer exec --nv /a.sif jupyterhub-singleuser\n")


def test_a_template_without_a_shebang_gets_one() -> None:
    """sbatch refuses a script without."""
    assert _render("{cmd}").script.startswith(
        f"#!/bin/bash\n#SBATCH --comment={TAG}\n#SBATCH --nodes=1\n#SBATCH --chdir=/home/ada\n"
        "#SBATCH --export=ALL\n# --- gpuspawner"
    )


def test_cmd_is_where_the_template_puts_it() -> None:
    """Behind srun, in a condition, wherever."""
    assert (
        f"\nif true; then srun -n1 {CALL} --debug; fi\n"
        in _render("#!/bin/bash\nif true; then srun -n1 {cmd} --debug; fi\n").script
    )


def test_exec_is_told_to_leave_a_folder_behind() -> None:
    """The shell that would remove it is gone by then; in another shell it is what it should be."""
    assert _render("#!/bin/bash\nsrun bash -c 'source /etc/profile; exec {cmd}'\n").notes == ()
    note = "exec before {cmd} leaves the launcher's folder behind on the node: write {cmd} without it."
    for line in ("exec srun {cmd}", "cd /x && exec {cmd}", "if true; then exec nice {cmd}; fi", "(exec {cmd})"):
        assert _render(f"#!/bin/bash\n{line}\n").notes == (note,), line
    assert _render("#!/bin/bash\napptainer exec --nv /images/a.sif {cmd}\n").notes == ()


def test_a_name_without_a_value_is_empty_in_jinja_and_said() -> None:
    """As batchspawner leaves it empty, which a template with a condition for it relies on."""
    rendered = _render(
        "#!/bin/bash\n{% if gpu_wanted %}#SBATCH --gpus=1\n{% endif %}module load a{{ version }}\n{{ cmd }}\n"
    )

    assert rendered.notes == (
        "gpu_wanted has no value, and is empty wherever the template names it.",
        "version has no value, and is empty wherever the template names it.",
    )
    assert "--gpus" not in rendered.script
    assert "\nmodule load a\n" in rendered.script


@pytest.mark.parametrize(
    ("line", "noted"),
    [
        ("trap 'rm -rf /scratch/x' EXIT", True),
        ("  trap clean_up 0 TERM", True),
        ("trap 'gpuspawner_end; clean_up' EXIT", False),
        ("trap clean_up TERM", False),
        ("trap - EXIT", False),
        ("# trap clean_up EXIT", False),
    ],
)
def test_a_trap_of_the_sites_own_is_told_to_call_ours(line: str, noted: bool) -> None:
    """A shell has one for its end, and bash alone lets the script have both."""
    assert _render(f"#!/bin/bash\n{line}\n{{cmd}}\n").notes == ()
    note = "trap ... EXIT replaces the launcher's, which removes its folder: call gpuspawner_end in yours, too."
    assert _render(f"#!/bin/sh\n{line}\n{{cmd}}\n").notes == (note,) * noted


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "#!/bin/bash\necho\n",
            "batch_script: the template has no {cmd} outside of its comments. Put {cmd} on the line",
        ),
        ("#!/bin/bash\n# {cmd}\necho\n", "batch_script: the template has no {cmd} outside of its comments."),
        ("", "batch_script: the template has no {cmd}"),
        (
            "{cmd} {queu}",
            "batch_script: there is no value called 'queu'. Write $HOME without braces, or the template",
        ),
        ("{{ cmd }} {{ queu.name }}", "batch_script: 'queu' is undefined. Names are account, cmd, epilogue,"),
        ("{cmd} ${{HOME}}", "batch_script: for jinja2, which {{ or {% asks for, {cmd} is no variable. Write $HOME"),
        ("{{ cmd }}\n{% if %}", "batch_script, line 2: Expected an expression, got 'end of statement block'."),
        ("{{ cmd }} {{ ''.__class__.x }}", "batch_script: access to attribute '__class__' of 'str' object is unsafe."),
        ("{cmd} ${HOME:-x}", "batch_script: there is no value called 'HOME'."),
        ("{cmd} }", "batch_script: the template cannot be filled in: Single '}' encountered in format string."),
        ("{cmd} {}", "batch_script: the template cannot be filled in: "),
        ("{cmd.nothing}", "batch_script: the template cannot be filled in: 'str' object has no attribute 'nothing'."),
    ],
)
def test_a_template_that_cannot_be_a_script_is_explained(template: str, message: str) -> None:
    """The error names the fault and the valid names."""
    with pytest.raises(ConfigError) as caught:
        _render(template)
    assert str(caught.value).startswith(message)


@given(
    st.sampled_from(["partition", "runtime", "memory", "reservation", "account", "options", "homedir", "username"]),
    st.text(max_size=20) | st.sampled_from(["a\n#SBATCH --uid=0", "a\r\nid", "{cmd}", "{{ cmd }}", "{% raw %}"]),
)
def test_no_value_can_add_a_line_or_be_a_template(name: str, value: str) -> None:
    """It is rejected, or appears unchanged in the line where the template puts it."""
    template = f"#!/bin/bash\n#SBATCH --nodes=1\necho '{{{name}}}'\n{{cmd}}\n"
    try:
        lines = _render(template, **{name: value}).script.split("\n")
    except ConfigError:
        assert not value.isprintable()
        return
    assert f"echo '{value}'" in lines
    assert lines.index(CALL) - lines.index(f"echo '{value}'") == 1
