"""Where a field of a profile is written: the file and line, or the hub's configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.start.build import SETTINGS
from jupyterhub_gpuspawner.profiles.files.folder import FOLDER_FLAGS, SIZE_LIMIT, UnfitFile, read_regular, shown_name
from jupyterhub_gpuspawner.profiles.files.yaml_text import Document, YamlFault, read_document
from jupyterhub_gpuspawner.profiles.option import put_over
from jupyterhub_gpuspawner.profiles.profile import slug_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.profiles.cases import Case
    from jupyterhub_gpuspawner.profiles.profile import Profile


class Locations:
    """Those of a site's profiles; files are read once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        spawner = context.spawner
        self._folder = spawner.source.folder if isinstance(spawner, GPUProfilesSpawner) else None
        self._documents: dict[str, Document | None] = {}

    def of(self, profile: Profile, path: Sequence[str] = ()) -> str:
        """``profile gpu: slurm.gpus``, or ``profile gpu (site.yaml:7): slurm.gpus`` of one in a file."""
        name = self._folder.file_of(profile.slug) if self._folder is not None else ""
        configured = not name or any(each.slug == profile.slug for each in self._configured())
        head = f"profile {profile.slug}"
        if not configured:
            head = f"{head} ({shown_name(name)}:{self._line(name, profile.slug, path)})"
        return f"{head}: {'.'.join(path)}" if path else head

    def of_fault(self, profile: Profile, case: Case, field: str) -> str:
        """The place of the value that ``field`` of ``slurm`` has in a case: an option, the profile, or a setting."""
        options, said = profile.profile_options, profile.as_override()
        untouched = said
        path: tuple[str, ...] = ("slurm", field) if field in profile.slurm.model_fields_set else ()
        for name, option in options.items():
            value = case.options.get(name, option.initial(untouched))
            if value is None:
                continue
            over = option.choose(value)[1]
            said = put_over(said, over)
            if field in over.slurm.model_fields_set:
                part = ("choices", str(value), "slurm", field) if option.choices else ("range",)
                path = ("profile_options", name, *part)
        if case.path and path[:2] != case.path[:2]:
            path = case.path  # the value of another option made the difference
        elif case.path[-2:-1] == ("range",):
            path = case.path
        if path:
            return self.of(profile, path)
        if getattr(self._context.defaults, field, None) is not None:
            site = self._context.slurm_site
            return site.configured_as(f"req_{SETTINGS.get(field, field)}")
        return self.of(profile, ("slurm", field))

    def _configured(self) -> Sequence[Profile]:
        return self._context.spawner.source.configured_profiles()  # type: ignore[no-any-return]

    def _line(self, name: str, slug: str, path: Sequence[str]) -> int:
        if name not in self._documents:
            self._documents[name] = self._read(name)
        document = self._documents[name]
        return document.line([*_base(document.value, slug), *path]) if document is not None else 1

    def _read(self, name: str) -> Document | None:
        assert self._folder is not None  # noqa: S101 - of
        try:
            folder = os.open(self._folder.path, FOLDER_FLAGS)
        except OSError:
            return None
        try:
            return read_document(read_regular(folder, name, limit=SIZE_LIMIT).decode("utf-8"))
        except (OSError, UnfitFile, UnicodeDecodeError, YamlFault):  # its last good version is offered
            return None
        finally:
            os.close(folder)


def _base(value: Any, slug: str) -> tuple[str | int, ...]:
    """The path of a profile in its file."""
    inside: tuple[str | int, ...] = ()
    if isinstance(value, dict) and "profiles" in value:
        value, inside = value["profiles"], ("profiles",)
    for position, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict) and slug == (item.get("slug") or slug_of(str(item.get("display_name", "")))):
            return (*inside, position)
    return inside
