"""How large the scripts of the pages are, and HTMX, which would do a part of their work.

    python benchmarks/script_sizes.py > docs/explanation/scripts-table.md

HTMX comes from npm, in a temporary folder.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

HTMX = "4.0.1"
PACKAGE = Path(__file__).parent.parent / "jupyterhub_gpuspawner"
EXCHANGING = ("home.js", "live.js", "stream.js", "cluster.js", "course.js", "instead.js")
"""The scripts whose work HTMX does in part: they fetch HTML and put it into the page."""
HEAD = """# What the scripts of the pages weigh

Written by `python benchmarks/script_sizes.py`: each file as delivered, with comments and types, and as gzip
compresses it at level 9; for the [decision about HTMX](decisions/0012-scripts-of-our-own.md).

| | bytes | compressed |
| --- | ---: | ---: |"""


def main() -> None:
    """Print the page."""
    scripts = sorted(path for path in PACKAGE.rglob("static/*.js") if "demo" not in path.parts)
    exchanging = [path for path in scripts if path.name in EXCHANGING]
    print(HEAD)
    for name, text in htmx().items():
        print(row(f"HTMX {HTMX}, `{name}`", [text]))
    print(row(f"the {len(scripts)} scripts of all pages", (path.read_bytes() for path in scripts)))
    names = ", ".join(f"`{path.name}`" for path in exchanging)
    print(row(f"of these those whose work HTMX does in part: {names}", (path.read_bytes() for path in exchanging)))


def row(title: str, texts: Iterable[bytes]) -> str:
    """A row of the table; each file is compressed by itself, as it is delivered."""
    sizes = [(len(text), len(gzip.compress(text, 9, mtime=0))) for text in texts]
    plain, compressed = (sum(column) for column in zip(*sizes, strict=True))
    return f"| {title} | {plain:,} | {compressed:,} |"


def htmx() -> dict[str, bytes]:
    """The minified library, and its extension for event streams, by their names; raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, f"htmx.org@{HTMX}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (packed,) = Path(folder).iterdir()
        with tarfile.open(fileobj=io.BytesIO(packed.read_bytes())) as archive:
            files = {Path(member.name).name: member for member in archive if member.isfile()}
            return {name: _read(archive, files[name]) for name in ("htmx.min.js", "hx-sse.min.js")}


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    reading = archive.extractfile(member)
    assert reading is not None
    return reading.read()


if __name__ == "__main__":
    main()
