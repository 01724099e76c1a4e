"""What the forms of other spawners become in a profile: its options. And what is known of these forms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

KNOWN = yaml.safe_load(Path(__file__).with_name("forms.yaml").read_text("utf-8"))
"""The tables of ``forms.yaml``."""


def number_option(
    title: str, field: str, low: float, high: float, *, default: float, step: float = 1, unit: str | None = None
) -> dict[str, Any]:
    """A number between two bounds."""
    bounds = {"min": low, "max": high, **({"step": step} if step != 1 else {})}
    named_unit = {"unit": unit} if unit else {}
    return {"display_name": title, "range": {**bounds, "default": default, "sets": f"slurm.{field}", **named_unit}}


def text_option(title: str, field: str, unset: str, first: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A text; ``unset`` is the choice of those who enter none, and ``first`` what it sets below ``slurm``."""
    expression, message = KNOWN["texts"][field]
    default = {"display_name": unset, **({"slurm": dict(first)} if first else {}), "default": True}
    unlisted = {"validation_regex": expression, "validation_message": message, "sets": f"slurm.{field}"}
    return {"display_name": title, "choices": {"default": default}, "unlisted_choice": unlisted}


def choice_option(title: str, choices: Mapping[str, Mapping[str, Any]], default: str) -> dict[str, Any]:
    """A list of choices."""
    marked = {key: {**choice, **({"default": True} if key == default else {})} for key, choice in choices.items()}
    return {"display_name": title, "choices": marked}
