"""Lines of sbatch options, as every part of the package reads them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.batch.template import option_word
from jupyterhub_gpuspawner.check.probe_job import small
from jupyterhub_gpuspawner.check.profiles import licenses_of
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.sbatch_options import FLAGS, OPTIONS, options_in, options_of


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("-J name -c4 -N 2", [("job-name", "name"), ("cpus-per-task", "4"), ("nodes", "2")]),
        ("--lic=matlab:2 --ntasks-per-n 1", [("licenses", "matlab:2"), ("ntasks-per-node", "1")]),
        ('--wckey="a -b" --exclusive --mem 4G', [("wckey", "a -b"), ("exclusive", ""), ("mem", "4G")]),
        ("--n=1 -Z1", [("n", "1"), ("Z", "1")]),
        ("--mem=1G # --mem=2G", [("mem", "1G")]),
        ("-H --stepmgr -Q g1", [("hold", ""), ("stepmgr", ""), ("quiet", "")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_line_is_read_as_sbatch_reads_it(line: str, options: list[tuple[str, str]]) -> None:
    """Short options, beginnings of long ones, quotes, flags and comments; what sbatch does not have has its letter."""
    assert list(options_of(line)) == options


def test_the_options_of_a_script_are_those_before_its_first_command() -> None:
    """So sbatch reads it; one that is indented is a comment."""
    script = "#!/bin/bash\n#SBATCH -p gpu --mem=1G\n\n# others\n#SBATCH --hold\n"
    script += "  #SBATCH --mem=2G\n\t#SBATCH -c2\ntrue\n#SBATCH --exclusive\n"

    assert dict(options_in(script)) == {"partition": "gpu", "mem": "1G", "hold": ""}


def test_flags_are_options() -> None:
    """Of the same table."""
    assert set() == FLAGS - OPTIONS


@pytest.mark.parametrize("line", ["--licenses=matlab:2,idl", "-L matlab:2;idl", "--lic matlab:2;idl", "-Lmatlab:2,idl"])
def test_licences_are_found_however_they_are_written(line: str) -> None:
    """The last option counts, as for sbatch."""
    options = Resources(extra=("-L other", line)).extra_options

    assert licenses_of(options) == {"matlab": 2, "idl": 1}


def test_the_job_of_a_check_keeps_what_says_where_it_may_run() -> None:
    """And nothing that says how large it is."""
    resources = Resources(cpus=8, extra=("-w g1 --mem=100G", "--lic=idl", "--exclusive"))

    assert small(resources).extra == ("--nodelist=g1", "--licenses=idl")


@pytest.mark.parametrize("line", ["--gres=license:1", "--gres license:1"])
def test_generic_resources_of_a_line_share_the_option_of_the_gpus(line: str) -> None:
    """Since sbatch uses only the last one."""
    resources = Resources(gpus=1, extra=(line,))

    assert (resources.gres_option, resources.options) == ("gpu:1,license:1", ())


LINES = [
    '--comment="a \\"b" --wckey=\'it\\\'s "x"\' --job-name="HPC\\ada"',
    "--account='a\\b' --partition=a#b --qos=x",
    "--comment='a b' --wckey='a\\ b' --job-name=\"a'b\"  # a comment --qos=x",
    "--comment=\"a#b\" -A'a b' -p \"x\"'y'z",
    '-J a\\\\b --wckey="\\\\" --comment=\'"\'',
    "--comment=a\\#b --wckey=ü --account=a|b&c",
]
SLURM_CONF = (
    "ClusterName=c\nSlurmctldHost=localhost\nSlurmctldPort=1\nAuthType=auth/none\nNodeName=n1\nMessageTimeout=1\n"
)


def read_by_sbatch(line: str, folder: Path) -> dict[str, str]:
    """The options as the sbatch of this machine says that it has read them; no Slurm runs."""
    (folder / "slurm.conf").write_text(SLURM_CONF)
    (folder / "job.sh").write_text(f"#!/bin/bash\n#SBATCH {line}\ntrue\n", encoding="utf-8")
    command = ["timeout", "-s", "KILL", "2", "sbatch", "-vv", "--test-only", str(folder / "job.sh")]  # newer ones wait
    environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(folder / "slurm.conf")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    found = re.findall(r"^sbatch: ([a-z-]+) +: (.*)$", done.stderr, re.MULTILINE)
    return {name: value for name, value in found if name not in ("test-only", "verbose")}


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="no sbatch")
@pytest.mark.parametrize("line", LINES)
def test_quotes_are_read_as_the_sbatch_of_this_machine_reads_them(line: str, tmp_path: Path) -> None:
    """Whatever its quotes; and so is what is written of it anew."""
    real = read_by_sbatch(line, tmp_path)
    words = [option_word(name, value) for name, value in options_of(line)]

    assert len(real) > 1
    assert dict(options_of(line)) == real
    assert read_by_sbatch(" ".join(words), tmp_path) == real
