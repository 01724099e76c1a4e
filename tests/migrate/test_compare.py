"""``gpuspawner migrate --compare``: batchspawner's own script beside the new one, and whether they are the same job."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.compare import comparisons
from jupyterhub_gpuspawner.migrate.migration import migrate
from jupyterhub_gpuspawner.slurm.job import Account
from tests.fixtures.commands import Call

ADA = Account("ada", "/home/ada", uid=1000)
OWN_TEMPLATE = """c.SlurmSpawner.batch_script = '''#!/bin/bash
#SBATCH --partition={{partition}} --job-name=nb
{% if memory %}#SBATCH --mem={{memory}}
{% endif %}
module load python
{{cmd}}
'''
"""
DOCUMENT = """c.SlurmSpawner.batch_script = '''#!/bin/bash
#SBATCH --partition={partition}
cat > run.sh <<'EOT'
#!/bin/bash
exec {cmd}
EOT
bash run.sh
'''
"""
BOTH = """#!/bin/bash
{% if gres %}#SBATCH --gres={{gres}}
{% endif %}{% if ngpus %}#SBATCH --gpus-per-task={{ngpus}}
{% endif %}{{cmd}}
"""
COMMAND = "c.SlurmSpawner.batch_submit_cmd = 'sbatch --parsable -A {account} --nice=5 -M {cluster}'\n"
KEPT = [
    "~ (not given) | --chdir=/home/ada",
    "~ (not given) | --comment=jupyterhub-gpuspawner/hub/ada/",
    "~ (not given) | --export=ALL",
    "~ (not given) | --nodes=1",
]
EVERY = [
    "~ (not given) | --comment=jupyterhub-gpuspawner/hub/ada/",
    "~ (not given) | --no-requeue",
    "~ (not given) | --nodes=1",
]
DEFAULT = [
    "  --chdir=/home/ada | --chdir=/home/ada",
    "~ --export=(names) | --export=ALL",
    "~ --get-user-env=L | (not given)",
    "~ --job-name=spawner-jupyterhub | --job-name=jupyterhub",
    "~ --output=/home/ada/jupyterhub_slurmspawner_%j.log | --output=/home/ada/jupyterhub-%j.log",
    "~ set -euo pipefail |",
    "~ trap 'echo SIGTERM received' TERM |",
    "~ srun jupyterhub-singleuser | jupyterhub-singleuser",
    '~ echo "jupyterhub-singleuser ended gracefully" |',
    *EVERY,
]
OWN = [
    "~ (not given) | --chdir=/home/ada",
    "~ (not given) | --export=ALL",
    "~ --job-name=nb | --job-name=jupyterhub",
    "~ (not given) | --output=/home/ada/jupyterhub-%j.log",
    "~ | set +euo pipefail",
    "  module load python | module load python",
    "  jupyterhub-singleuser | jupyterhub-singleuser",
    *EVERY,
]


def hub(profiles: str, lines: str = "") -> str:
    """A hub of wrapspawner's."""
    first = "c.JupyterHub.spawner_class = 'wrapspawner.ProfilesSpawner'"
    return f"{first}\n{lines}\nc.ProfilesSpawner.profiles = {profiles}\n"


SLURM = "'batchspawner.SlurmSpawner'"
JOBS: dict[str, tuple[str, list[str], bool]] = {
    "batchspawner alone": (
        "c.JupyterHub.spawner_class = 'batchspawner.SlurmSpawner'\nc.SlurmSpawner.req_memory = '8G'\n",
        [*DEFAULT, "  --mem=8192M | --mem=8192M"],
        True,
    ),
    "no time limit": (
        hub(f"[('A', 'a', {SLURM}, {{'req_runtime': '0'}})]"),
        [*DEFAULT, "  --time=UNLIMITED | --time=UNLIMITED"],
        True,
    ),
    "names that the class does not have": (
        hub(f"[('A', 'a', {SLURM}, {{'req_cores': '2', 'req_partition': 'main'}})]"),
        [*DEFAULT, "  --partition=main | --partition=main"],
        True,
    ),
    "a template of the site's": (
        hub(f"[('A', 'a', {SLURM}, {{'req_partition': 'cpu', 'req_memory': '4G'}})]", OWN_TEMPLATE),
        [*OWN, "  --mem=4096M | --mem=4096M", "  --partition=cpu | --partition=cpu"],
        True,
    ),
    "GPUs that did not reach the job": (
        hub(f"[('A', 'a', {SLURM}, {{'req_partition': 'cpu', 'req_ngpus': '1'}})]", OWN_TEMPLATE),
        [*OWN, "! (not given) | --gres=gpu:1", "  --partition=cpu | --partition=cpu"],
        False,
    ),
    "options of the command line": (
        COMMAND + hub(f"[('A', 'a', {SLURM}, {{'req_account': 'x', 'req_cluster': 'one'}})]"),
        [*DEFAULT, *(f"  --{same} | --{same}" for same in ("account=x", "clusters=one", "nice=5"))],
        True,
    ),
    "a here-document with comments": (
        hub(f"[('A', 'a', {SLURM}, {{'req_partition': 'cpu'}})]", DOCUMENT),
        [
            *KEPT,
            *(f"  {line} | {line}" for line in ("--partition=cpu", "cat > run.sh <<'EOT'", "EOT", "bash run.sh")),
            "  exec jupyterhub-singleuser | exec jupyterhub-singleuser",
        ],
        True,
    ),
    "a server in the shell's place": (
        hub(
            f"[('A', 'a', {SLURM}, {{}})]", "c.SlurmSpawner.batch_script = '#!/bin/bash\\n#SBATCH -p x\\nexec {cmd}\\n'"
        ),
        [
            *OWN[:1],
            "~ (not given) | --export=ALL",
            "~ (not given) | --job-name=jupyterhub",
            "~ (not given) | --output=/home/ada/jupyterhub-%j.log",
            "  --partition=x | --partition=x",
            "~ exec jupyterhub-singleuser | jupyterhub-singleuser",
            *EVERY,
        ],
        True,
    ),
    "a value that is left out": (
        hub(f"[('A', 'a', {SLURM}, {{'req_memory': 'lots'}})]"),
        [*DEFAULT, "! --mem=lots | (not given)"],
        False,
    ),
}


@pytest.mark.parametrize(("text", "lines", "same"), JOBS.values(), ids=JOBS.keys())
def test_both_scripts_of_a_profile_are_shown(tmp_path: Path, text: str, lines: list[str], same: bool) -> None:
    """Each line of both, with the mark of those that differ."""
    old = tmp_path / "old.py"
    old.write_text(text)
    (comparison,) = comparisons(migrate(old), ADA)
    assert comparison.fault == ""
    shown = [" ".join(f"{pair.was} | {pair.now}".split()) for pair in comparison.pairs]

    assert sorted(f"{pair.mark} {line}" for pair, line in zip(comparison.pairs, shown, strict=True)) == sorted(
        line if not line.startswith("~ |") else "~ " + line[2:] for line in lines
    )
    assert comparison.same is same


GPUS = {
    "a count": [{"req_ngpus": "2"}, {}],
    "generic resources": [{"req_gres": "gpu:a100:2"}, {}],
    "both": [{"req_gres": "gpu:2", "req_ngpus": "2"}],
    "one and the other": [{"req_ngpus": "2"}, {"req_gres": "gpu:2,nvme:1"}, {"req_gres": "gpu", "req_ngpus": "1"}, {}],
    "a template of its own": [{"req_ngpus": "2"}, {"req_gres": "gpu:2", "batch_script": "{{ngpus}}"}],
}


@pytest.mark.parametrize("profiles", GPUS.values(), ids=GPUS)
def test_a_template_that_has_two_variables_for_gpus_has_the_one_that_was_set(
    tmp_path: Path, profiles: list[dict[str, str]]
) -> None:
    """Though a field does not tell, which is the same for both."""
    traits = [{**own, **({"batch_script": f"{BOTH}# own\n"} if "batch_script" in own else {})} for own in profiles]
    old, script = tmp_path / "old.py", f"c.SlurmSpawner.batch_script = {BOTH!r}"
    old.write_text(hub(str([(f"{at}", f"p{at}", SLURM.strip("'"), own) for at, own in enumerate(traits)]), script))
    found = [*comparisons(migrate(old), ADA)]

    assert [(comparison.same, comparison.text()) for comparison in found if not comparison.same] == []
    assert len(found) == len(profiles)


def test_a_profile_of_which_batchspawner_makes_no_script_is_told(tmp_path: Path) -> None:
    """A number where batchspawner has a text ended each start."""
    old = tmp_path / "old.py"
    old.write_text(hub(f"[('A', 'a', {SLURM}, {{'req_nprocs': 2}})]"))
    (comparison,) = comparisons(migrate(old), ADA)

    assert comparison.fault.startswith("batchspawner makes no script of it: TraitError: ")
    assert (comparison.same, comparison.pairs) == (False, ())


def test_a_profile_that_is_left_out_is_not_the_same(tmp_path: Path) -> None:
    """Nor is a hub of which no profile is left."""
    old = tmp_path / "old.py"
    old.write_text(hub("[(1, 2, 3)]"))

    assert [(each.profile, each.same) for each in comparisons(migrate(old), ADA)] == [
        ("1", False),
        ("servers that no profile describes", False),
    ]


def test_what_stays_in_the_file_is_in_both(tmp_path: Path) -> None:
    """The command of all servers, and its arguments."""
    old = tmp_path / "old.py"
    old.write_text(
        "c.JupyterHub.spawner_class = 'batchspawner.SlurmSpawner'\nc.Spawner.args = ['--debug', '--a=1']\n"
        "c.Spawner.cmd = ['/opt/bin/jupyterhub-singleuser']\nc.SlurmSpawner.req_partition = 'p'\n"
    )
    (comparison,) = comparisons(migrate(old), ADA)

    assert comparison.same, comparison.text()
    assert any(pair.now == "/opt/bin/jupyterhub-singleuser --debug --a=1" for pair in comparison.pairs)


def test_the_job_of_a_form_cannot_be_compared(tmp_path: Path) -> None:
    """The old script has what the user chose."""
    old = tmp_path / "old.py"
    old.write_text(
        "c.JupyterHub.spawner_class = 'jupyterhub_moss.MOSlurmSpawner'\nc.MOSlurmSpawner.partitions = {'gpu': {}}\n"
    )
    with pytest.raises(ConfigError, match="only the scripts of batchspawner's and wrapspawner's hubs"):
        [*comparisons(migrate(old), ADA)]


@pytest.mark.parametrize(("name", "status"), [("no time limit", 0), ("a value that is left out", 1)])
def test_the_exit_status_says_whether_the_jobs_are_the_same(
    gpuspawner: Call, tmp_path: Path, name: str, status: int
) -> None:
    """And the name of each profile is above its two columns."""
    old = tmp_path / "old.py"
    old.write_text(JOBS[name][0])
    called = gpuspawner("migrate", old, "--compare", "root")

    assert (called.exit_code, called.stdout.split("\n")[0]) == (status, "# profile a")
