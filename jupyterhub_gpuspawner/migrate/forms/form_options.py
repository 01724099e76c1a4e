"""Options of a profile, as documents: what a form's number, text and list of the older spawners become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

TIME = r"([0-9]+-)?[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?"
MEMORY = r"[0-9]{1,9}[KMGT]?"
COUNT = r"[0-9]{1,4}"
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
FEATURES = r"[A-Za-z0-9_][A-Za-z0-9_.&|-]*"
TEXTS = {
    "slurm.account": (NAME, "an account's name"),
    "slurm.constraint": (FEATURES, "features of nodes, joined by &"),
    "slurm.cpus": (COUNT, "a number of CPUs"),
    "slurm.gpus": (COUNT, "a number of GPUs"),
    "slurm.memory": (MEMORY, "MiB, or with a unit, such as 16G"),
    "slurm.partition": (NAME, "a partition's name"),
    "slurm.reservation": (NAME, "a reservation's name"),
    "slurm.time": (TIME, "hours and minutes, such as 4:00:00"),
}
"""Fields that a text may set, with their expression, and what is expected in words."""


def number_option(
    title: str, sets: str, low: float, high: float, *, default: float, step: float = 1, unit: str | None = None
) -> dict[str, Any]:
    """A number between two bounds."""
    bounds: dict[str, Any] = {"min": low, "max": high, "step": step, "default": default, "sets": sets}
    if step == 1:
        del bounds["step"]
    if unit:
        bounds["unit"] = unit
    return {"display_name": title, "range": bounds}


def text_option(title: str, sets: str, unset: str, first: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A text; ``unset`` is the choice of those who enter none, and ``first`` what it sets."""
    expression, message = TEXTS[sets]
    return {
        "display_name": title,
        "choices": {"default": {"display_name": unset, **(first or {}), "default": True}},
        "unlisted_choice": {"validation_regex": expression, "validation_message": message, "sets": sets},
    }


def choice_option(title: str, choices: Mapping[str, Mapping[str, Any]], default: str = "") -> dict[str, Any]:
    """A list of choices."""
    marked = {key: {**choice, **({"default": True} if key == default else {})} for key, choice in choices.items()}
    return {"display_name": title, "choices": marked}
