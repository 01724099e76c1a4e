"""Which nodes satisfy a job's ``--constraint``."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyterhub_gpuspawner.extensions.availability.model.fit import satisfies

HAS = frozenset({"k80", "ib", "gpu:big"})


@pytest.mark.parametrize(
    ("constraint", "satisfied"),
    [
        ("k80", True),
        ("v100", False),
        ("k80&ib", True),
        ("k80,ib", True),
        ("k80&v100", False),
        ("v100|ib", True),
        ("v100|a100", False),
        ("(v100|k80)&ib", True),
        ("ib|k80&v100", False),
        ("ib|(k80&v100)", True),
        ("gpu:big", True),
        ("[k80|v100]", None),
        ("k80*2&ib*4", None),
        ("k80&", None),
        ("(k80", None),
        ("k80)", None),
        ("!k80", None),
    ],
)
def test_constraint_reads_from_left_to_right_as_sbatch_does(constraint: str, satisfied: bool | None) -> None:
    """``&`` and ``|`` have equal precedence, parentheses group; counts and matching sets are left to Slurm."""
    assert satisfies(constraint, HAS) is satisfied


@settings(deadline=None)
@given(st.text(alphabet="ab&|(),[]*!", max_size=30))
def test_any_text_gets_an_answer(constraint: str) -> None:
    """True, False or None; never an exception."""
    assert satisfies(constraint, frozenset("a")) in (True, False, None)
