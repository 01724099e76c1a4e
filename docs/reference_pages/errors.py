"""The error classes, and the messages for what Slurm and sudo report."""

from __future__ import annotations

import inspect

from jupyterhub_gpuspawner import errors
from jupyterhub_gpuspawner.slurm import messages

from .wording import code, markdown, table


def error_classes() -> list[type[errors.GPUSpawnerError]]:
    """The classes of ``errors.py``, in its order."""
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.GPUSpawnerError)
    ]


def page() -> str:
    """The page of errors and messages."""
    tree = inspect.cleandoc(errors.__doc__ or "").split("::\n\n")[1].split("\n\n")[0]
    rows = [
        (code(cls.__name__), code(cls.reason), str(cls.status_code), markdown(cls.__doc__)) for cls in error_classes()
    ]
    rejections = [(code(pattern), code(field), clause) for pattern, (field, clause) in messages.REJECTIONS.items()]
    silent = [(code(row.pattern), row.message, row.hint) for row in messages.SILENCES]
    sudo = [(code(row.pattern), row.message, row.hint) for row in messages.PREFIXES]
    return "\n".join(
        [
            "# Errors\n",
            f"```text\n{inspect.cleandoc(tree)}\n```\n",
            table(("Class", "Reason", "HTTP status", "Meaning"), rows),
            "Problems on a compute node are not errors: the server starts, and the placement document lists them.\n",
            "## What sbatch refuses\n",
            "In the hub's log, *Slurm refused the job: ...* is followed by the message below; the field is the one of "
            "the profile to check. Users read the message alone, or that Slurm did not accept the server where the "
            "field is none of a profile's. A text that is not in this table is shown unchanged.\n",
            table(("sbatch says (regular expression)", "Field", "Message"), rejections),
            "## When Slurm gives no answer\n",
            table(("The command says (regular expression)", "Message", "What to do"), silent),
            "## When sudo refuses\n",
            table(("sudo says (regular expression)", "Message", "What to do"), sudo),
        ]
    )
