"""What a site's hooks set on a spawner, which counts for the start before what the profile and its options say.

A hook is the later word, and it is about this very start: ``pre_spawn_hook``, ``auth_state_hook``, an admin's own
``apply_user_options``, the authenticator's ``pre_spawn_start``, and the ``start`` of a site's subclass.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jupyterhub_gpuspawner.batch.job import in_batchspawners_names, requested_instead
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.slurm_settings import OwnSettings
from jupyterhub_gpuspawner.profiles.resolve import JobRequest

_OF_PROFILE = ("port_range", "queue_timeout")
BEFORE_REQUEST = ("placement_policy", *_OF_PROFILE)
"""Settings that count only where the profile has none, beside those that a delegate gets."""


class HookSettings:
    """Finds what hooks have set: the settings that differ from when they were last seen."""

    def __init__(self, spawner: OwnSettings, names: Iterable[str]) -> None:
        self._spawner = spawner
        self._names = frozenset(names)
        self._seen: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        """What hooks have set for this start, by name; the variables of ``environment`` are in :attr:`variables`."""
        self.variables: dict[str, Any] = {}

    def begin(self) -> None:
        """A start begins, or a server is over: no hook has set anything."""
        self.settings, self.variables = {}, {}
        self.see()

    def see(self) -> None:
        """No hook has set what has changed until now."""
        self._seen = {name: copy.copy(getattr(self._spawner, name)) for name in self._names}

    def note(self) -> None:
        """Hooks have set what has changed since the last look."""
        for name, before in self._seen.items():
            value = getattr(self._spawner, name)
            if name == "environment":
                self.variables.update({key: text for key, text in value.items() if before.get(key) != text})
            elif value != before:
                self.settings[name] = copy.copy(value)
        self.see()

    def replaced_by_group(self) -> None:
        """The overrides of a user's groups have replaced some, and are the site's."""
        self.settings = {name: value for name, value in self.settings.items() if getattr(self._spawner, name) == value}
        of_spawner = self._spawner.environment  # type: ignore[attr-defined]
        self.variables = {name: value for name, value in self.variables.items() if of_spawner.get(name) == value}
        self.see()

    def over(self, request: JobRequest) -> JobRequest:
        """The request as hooks have changed it; raises ConfigError for a value that cannot be requested."""
        if not self.settings and not self.variables:
            return request
        of_job = request.profile.kind == "slurm"
        requests = {name: value for name, value in self.settings.items() if of_job and name.startswith("req_")}
        try:
            resources = requested_instead(request.resources, requests)
        except ConfigError as error:
            where = f"a hook's spawner.{error.where}"
            raise ConfigError(error.fault, where=where, hint=error.hint or "Correct the hook.") from error
        variables = {name: text for name, text in request.environment.variables.items() if name not in self.variables}
        policy = {"policy": None} if "placement_policy" in self.settings else {}
        return replace(
            request,
            profile=request.profile.model_copy(update={name: None for name in _OF_PROFILE if name in self.settings}),
            resources=resources,
            environment=request.environment.model_copy(update={"variables": variables}),
            placement=request.placement.model_copy(update=policy),
            command=None if "cmd" in self.settings else request.command,
            default_url=None if "default_url" in self.settings else request.default_url,
        )


def shown_to_hooks(request: JobRequest, cmd: Sequence[str]) -> dict[str, Any]:
    """A request as the settings in which a hook reads, changes and extends it; ``cmd`` is the site's command."""
    requests = {f"req_{name}": text for name, text in in_batchspawners_names(request.resources).items()}
    return {**requests, "cmd": list(request.command or cmd)}
