#!/usr/bin/env python3
"""Print which version of a package each Debian suite has, oldest suite first: one line ``SUITE VERSION`` for each.

Usage: scripts/debian_suites.py PACKAGE [MIRROR]. A suite that the mirror does not have is left out. The mirror is that
of this machine's own package lists, or else deb.debian.org.
"""

from __future__ import annotations

import contextlib
import lzma
import platform
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

SUITES = ("bullseye", "bookworm", "trixie", "forky", "sid")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el"}
DEFAULT = "http://deb.debian.org/debian"


def mirror(sources: Path = Path("/etc/apt")) -> str:
    """The first Debian mirror in apt's sources (sources.list(5)), in either format."""
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    for file in files:
        with contextlib.suppress(OSError):
            for match in re.finditer(r"^(?:URIs:|deb(?: \[.*?\])?) +(\S+)", file.read_text("utf-8"), re.MULTILINE):
                if match[1].rstrip("/").endswith("/debian"):
                    return match[1].rstrip("/")
    return DEFAULT


def version(package: str, listing: str) -> str | None:
    """The version of a package in the text of a ``Packages`` file; None if it is not in it."""
    match = re.search(rf"^Package: {re.escape(package)}\n(?:\S.*\n| .*\n)*?Version: (\S+)$", listing, re.MULTILINE)
    return match[1] if match else None


def listing(address: str, suite: str) -> str:
    """The ``Packages`` file of a suite's main component. Raises OSError."""
    architecture = ARCHITECTURES.get(platform.machine(), "amd64")
    url = f"{address}/dists/{suite}/main/binary-{architecture}/Packages.xz"
    with urllib.request.urlopen(url, timeout=120) as answer:  # noqa: S310 - the mirror that apt uses
        return lzma.decompress(answer.read()).decode()


def main(package: str, address: str) -> int:
    """Print the lines; the exit status is 1 if no suite could be read."""
    read = 0
    for suite in SUITES:
        try:
            text = listing(address, suite)
        except (OSError, urllib.error.URLError) as error:
            sys.stderr.write(f"{address} {suite}: {error}\n")
            continue
        read += 1
        package_version = version(package, text)
        if package_version is not None:
            sys.stdout.write(f"{suite} {package_version}\n")
    return 0 if read else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else mirror()))
