"""Links of a course: to its materials with nbgitpuller, and to its profile on the form. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.courses.course import Course, Materials

PREFIX = "course-"


def slug_of(course: str) -> str:
    """The slug of a course's profile, for the course's own slug."""
    return f"{PREFIX}{course}"


def pull_path(materials: Materials) -> str:
    """The path on the server at which nbgitpuller fetches the materials and then opens them in JupyterLab.

    It clones into a folder with the repository's name in the server's root folder. Its own name for that folder would
    end in ``.git`` where the address does.
    """
    folder = urlsplit(materials.git).path.rstrip("/").rpartition("/")[2].removesuffix(".git")
    opened = "/".join(part for part in (folder, materials.open.strip("/")) if part)
    query = {
        "repo": materials.git,
        "branch": materials.branch,
        "targetpath": folder,
        "urlpath": f"lab/tree/{quote(opened)}",
    }
    return f"/git-pull?{urlencode(query, quote_via=quote)}"


def participants_link(slug: str, course: Course, hub: str) -> str:
    """The address that participants of a course open: the form with the course selected, then its materials.

    ``hub`` is the hub's address or path, such as ``https://hub.example.org/hub/``.
    """
    base = f"{hub.rstrip('/')}/"
    query = {"opt-profile": slug_of(slug)}
    if course.materials is not None:
        query["next"] = f"{urlsplit(base).path}user-redirect{pull_path(course.materials)}"
    return f"{base}spawn?{urlencode(query, quote_via=quote, safe='')}"
