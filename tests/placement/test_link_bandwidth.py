"""The table of bandwidths: its figures, and the order that every choice rests on."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.placement.ring import gbps


@pytest.mark.parametrize(
    ("link", "nvlink", "pcie", "figure"),
    [
        ("NV1", 1, None, 20.0),
        ("NV2", 2, None, 50.0),
        ("NV12", 3, None, 300.0),
        ("NV18", 4, None, 450.0),
        ("NV18", 5, None, 900.0),
        ("NV2", None, None, 50.0),
        ("PIX", None, None, 12.0),
        ("PIX", None, 4, 24.0),
        ("PIX", None, 5, 48.0),
        ("PIX", None, 6, 48.0),
        ("PIX", None, 2, 12.0),
        ("SYS", 1, None, 7.0),
        ("SYS", 3, None, 12.0),
        ("SYS", 4, 3, 7.0),
        ("SOC", None, 3, 7.0),
        ("X", None, 3, 10.0),
        ("?", None, 3, 6.0),
    ],
)
def test_figures(link: str, nvlink: int | None, pcie: int | None, figure: float) -> None:
    """GB/s one way; the PCIe generation of GPUs with NVLink is that of their time where it is not known."""
    assert gbps(link, nvlink_generation=nvlink, pcie_generation=pcie) == figure


@pytest.mark.parametrize("nvlink", [None, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("pcie", [None, 3, 4, 5])
def test_order(nvlink: int | None, pcie: int | None) -> None:
    """The longer the path, the lower the bandwidth; an unknown link has the lowest."""
    words = ("PIX", "PXB", "PHB", "NODE", "SYS", "?")
    figures = [gbps(word, nvlink_generation=nvlink, pcie_generation=pcie) for word in words]
    assert figures == sorted(set(figures), reverse=True)


@pytest.mark.parametrize("word", ["", "OK", "NV", "nv1", "C2C"])
def test_other_words_are_refused(word: str) -> None:
    """Any other word raises ValueError."""
    with pytest.raises(ValueError, match="is not a link"):
        gbps(word)
