"""An admin's job script: its options as values, and taken apart into typed options and shell lines."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.migrate.template import DEFAULT_TEMPLATE, BatchTemplate, read_template, sbatch_options

HEAD = "#!/bin/bash\n#SBATCH --partition={partition}\n"


def test_batchspawners_own_template_needs_nothing() -> None:
    """Every option in it is a field, and no line of its is the site's."""
    assert read_template(DEFAULT_TEMPLATE) == BatchTemplate(
        DEFAULT_TEMPLATE,
        used={"partition", "runtime", "memory", "gres", "nprocs", "reservation", "options"},
        log_dir="{homedir}",
        shell_options=["set -euo pipefail"],
        dropped=[
            "set -euo pipefail",
            "trap 'echo SIGTERM received' TERM",
            'echo "jupyterhub-singleuser ended gracefully"',
        ],
        prologue_at=0,
        epilogue_at=0,
    )


def test_constants_options_and_shell_lines_are_told_apart() -> None:
    """What no field expresses is passed on as it is."""
    text = (
        f"{HEAD}#SBATCH -A physics -t 8:00:00 --mail-type=END --gres=gpu:a100:{{ngpus}}\n"
        f"#SBATCH -o /logs/{{username}}/%j\n"
        "module load CUDA\ncd {homedir}\nsrun --unbuffered {cmd}\nrm -rf /scratch/$SLURM_JOB_ID\n"
    )

    assert read_template(text) == BatchTemplate(
        text,
        constants={"account": "physics", "runtime": "8:00:00", "gpu_type": "a100"},
        used={"partition", "ngpus"},
        extra=["--mail-type=END"],
        log_dir="/logs/{username}",
        before=["module load CUDA", "cd $HOME"],
        after=["rm -rf /scratch/$SLURM_JOB_ID"],
        step="srun --unbuffered",
    )


def test_gpus_that_the_template_fixes_are_one_request() -> None:
    """--gpus may name a type as well, and on one node it is --gres."""
    assert read_template("#SBATCH --gpus=a100:2\n{cmd}\n").constants == {"gres": "gpu:a100:2"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("singularity run image.sif {cmd}", "its last command is more than {cmd}"),
        ("singularity run \\\n  image.sif \\\n  {cmd}", "its last command is more than {cmd}"),
        ("true", "it has no line, or more than one, that starts the server"),
        ("#SBATCH --mem={memory}gb\n{cmd}", "--mem={memory}gb combines a variable with text"),
        ("export QUEUE={queue}\n{cmd}", "its shell lines use variables"),
        ("env -i bash <<EOF\n{cmd}\nEOF", "its lines open a here document (EOF) that they do not end"),
        ("{prologue}\ndate\n{prologue}\n{cmd}", "it has {prologue} more than once"),
        ("exec bash\n{cmd}", "its lines replace the shell (exec)"),
        ("{cmd}\nrc=$?\nexit $rc", "its lines after {cmd} use the server's exit status"),
        ("echo ${HOME\n{cmd}", "it cannot be rendered (ValueError)"),
    ],
)
def test_what_cannot_be_typed_is_said(body: str, reason: str) -> None:
    """Such a template is kept."""
    assert read_template(HEAD + body).reasons == [reason]


COMPUTED = "it computes with the values of variables, or compares them"
SET = "more than the option or line with {gres} depends on whether that is set"


@pytest.mark.parametrize(
    ("head", "reasons"),
    [
        ("#SBATCH --partition={{partition}}", []),
        ("{% if gres is defined and gres %}#SBATCH --gres={{gres}}{% endif %}", []),
        ("{% if partition == 'gpu' %}#SBATCH -q gpu{% endif %}", [COMPUTED]),
        ("{% if username in ['ada'] %}#SBATCH -p vip{% else %}#SBATCH -p all{% endif %}", [COMPUTED]),
        ("{% if username.startswith('s') %}#SBATCH -p students{% endif %}", [COMPUTED]),
        ("#SBATCH --mem={{memory|int * 1024}}M", [COMPUTED]),
        ("#SBATCH --time={{runtime.split('-')[0]}}", [COMPUTED]),
        ("#SBATCH --time={{runtime or '8:00:00'}}", [SET.replace("gres", "runtime")]),
        ("{% set q = partition %}{% if q == 'x' %}#SBATCH -q x{% endif %}", [COMPUTED]),
        ("#SBATCH --partition={partition[0]}\n{cmd}", [COMPUTED]),
        ("#SBATCH -c {{64 // nprocs|int}}", ["it cannot be rendered (ZeroDivisionError)"]),
        ("{% if gres %}#SBATCH --gres={{gres}}\n{% else %}#SBATCH -p cpu\n{% endif %}", [SET]),
        ("{% if not gres %}#SBATCH -p cpu{% endif %}", [SET]),
        ("{% if gres %}#SBATCH --gres={{gres}} --cpus-per-gpu=4{% endif %}", [SET]),
        ("{% if gres %}#SBATCH --exclusive{% endif %}", [SET]),
        ("{% if gres %}module load cuda{% endif %}", [SET]),
    ],
)
def test_a_template_that_decides_by_values_is_kept(head: str, reasons: list[str]) -> None:
    """What it is for one profile or user is not what it is for another."""
    text = f"#!/bin/bash\n{head}\n" if "{cmd}" in head else f"#!/bin/bash\n{head}\n{{{{cmd}}}}\n"

    assert read_template(text).reasons[:1] == reasons


def test_a_variable_of_the_sites_own_is_named() -> None:
    """batchspawner has none of this name."""
    assert read_template(f"{HEAD}{{other}}\n{{cmd}}\n").unknown == ("other",)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("#SBATCH --mem=32G -t 90 -c4", {"mem": "32768M", "time": "1:30:00", "cpus-per-task": "4"}),
        ("#SBATCH --mem 4gb # enough", {"mem": "4096M"}),
        ('#SBATCH --comment="a b" --exclusive -N 2', {"comment": "a b", "exclusive": "", "nodes": "2"}),
        ("#SBATCH --exclusive --partition gpu", {"exclusive": "", "partition": "gpu"}),
        ("#SBATCH --export=A,B --gres=gpu", {"export": "(names)", "gres": "gpu:1"}),
        ("#SBATCH --export=ALL --uid=", {"export": "ALL", "uid": ""}),
        ("##SBATCH --mem=1G", {}),
        ("#SBATCH", {}),
        ("true\n#SBATCH --mem=1G", {}),
    ],
)
def test_lines_of_options_are_values(line: str, options: dict[str, str]) -> None:
    """As sbatch reads them: in short and long form, up to the first command."""
    assert sbatch_options(f"#!/bin/bash\n\n{line}\n") == options
