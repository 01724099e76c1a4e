"""gpuspawner topology --svg, with recorded texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.conftest import TEXTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.commands import Call


def test_the_picture_of_a_text(gpuspawner: Call, tmp_path: Path) -> None:
    """--svg writes only the picture; with --json the JSON is printed as well."""
    drawn, text = tmp_path / "node.svg", TEXTS / "024_dgx1v_microway.txt"
    only = gpuspawner("topology", "--text", text, "--svg", drawn)
    assert (only.exit_code, only.stdout, drawn.read_text()[:5]) == (0, "", "<svg ")
    assert gpuspawner("topology", "--text", text, "--svg", "-").stdout == drawn.read_text()
    assert len(json.loads(gpuspawner("topology", "--text", text, "--svg", drawn, "--json").stdout)["gpus"]) == 8


def test_a_picture_does_not_go_with_recording(gpuspawner: Call) -> None:
    """Options that a subcommand would silently leave out are refused."""
    result = gpuspawner("topology", "--svg", "-", "record", "-")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--svg cannot be used with record." in result.stderr


def test_a_picture_goes_with_lines_for_gres_conf(gpuspawner: Call, tmp_path: Path) -> None:
    """As with any other output."""
    drawn = tmp_path / "node.svg"
    text = TEXTS / "024_dgx1v_microway.txt"
    both = gpuspawner("topology", "--text", text, "--svg", drawn, "--json")
    assert (both.stdout, drawn.read_text()[:5]) == (gpuspawner("topology", "--text", text, "--json").stdout, "<svg ")
