"""The setting of ``c.GPUProfilesSpawner`` about courses."""

from __future__ import annotations

from typing import Any

from traitlets import HasTraits, Unicode


class CourseSettings(HasTraits):
    """Where the courses of a hub are."""

    courses_dir = Unicode(
        "",
        config=True,
        help="Folder of YAML files with courses, one for each, which are read again. See `gpuspawner course check`.",
    ).tag(of_the_hub=True, is_folder=True)


def courses_dir_of(spawner: Any) -> str:
    """The folder with the courses of a spawner's hub; empty where there are none."""
    folder: str = spawner.courses_dir
    return folder
