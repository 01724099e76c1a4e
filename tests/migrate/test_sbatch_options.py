"""The options of a batch script as values."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.migrate.template import sbatch_options


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
