"""What the check says of a request that can never run."""

from __future__ import annotations

import ast
import inspect

from jupyterhub_gpuspawner.extensions.availability.faults import BY_FAULT
from jupyterhub_gpuspawner.extensions.availability.model import limits
from jupyterhub_gpuspawner.extensions.availability.model.limits import FaultKind


def test_every_fault_of_a_request_has_a_finding() -> None:
    """A fault without one would end the check of all profiles that come after it."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(limits))) if isinstance(node, ast.Call)]
    faults = set()
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id == "Fault" and isinstance(call.args[0], ast.Constant):
            kind = call.args[2].attr if len(call.args) > 2 and isinstance(call.args[2], ast.Attribute) else "AMOUNT"
            faults.add((call.args[0].value, FaultKind[kind]))

    assert len(faults) > 15
    assert faults - BY_FAULT.keys() == set()
