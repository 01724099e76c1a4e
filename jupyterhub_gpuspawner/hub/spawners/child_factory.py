"""Child spawners: built for a request, for a trial or from stored state, and given the wrapper's settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name
from jupyterhub_gpuspawner.hub.spawners.child import TIMES, Inheritance, new_child, other_class
from jupyterhub_gpuspawner.hub.spawners.local import GPULocalSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyterhub_gpuspawner.hub.spawner_bases import Spawner
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest

STATE_VERSION = 1
CONNECTION = ("exec_prefix", "query_prefix", "slurm_bin_dir", "wrapper_dir")
"""Settings of a Slurm server without which its job cannot be found, polled or cancelled."""


def connection_settings(kind: str, traits: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a profile's settings without which its server cannot be found again: stored, as a profile may change.

    Which ones these are is not known of another package's spawner: all are, except variables, which may be secret, and
    what cannot be stored. A process on the hub's machine is found by its number.
    """
    if kind == "slurm":
        return {name: traits[name] for name in CONNECTION if name in traits}
    if kind == "other":
        return {name: value for name, value in traits.items() if name != "environment" and _is_json(value)}
    return {}


def _is_json(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


@dataclass(frozen=True)
class Child:
    """A child spawner and the profile that it was built for."""

    spawner: Spawner
    profile: str
    """The profile's slug; empty in state that names none."""
    kind: str
    """``slurm``, ``local`` or ``other``."""
    class_name: str = ""
    """Dotted name of the spawner's class, for kind ``other``."""
    own_settings: frozenset[str] = frozenset()
    """Names of settings that the profile has set."""
    display_name: str = ""
    """The profile's name as it was when it was chosen; empty in state of an earlier version."""
    app: str = ""
    """The name of its application; empty for Jupyter, and in state of an earlier version."""
    connection: Mapping[str, Any] | None = None
    """The profile's settings without which the server cannot be found again; None in state of an earlier version."""

    def get_state(self) -> dict[str, Any]:
        """Return what a later hub needs to restore the child; of the configuration only what finds the server."""
        state = {
            "version": STATE_VERSION,
            "profile": self.profile,
            "kind": self.kind,
            "child": self.spawner.get_state(),
        }
        more = {"class": self.class_name, "display_name": self.display_name, "app": self.app}
        if self.connection is not None:
            state["connection"] = dict(self.connection)
        return {**state, **{key: value for key, value in more.items() if value}}


class ChildFactory:
    """Builds the children of one wrapper, the spawner that JupyterHub knows."""

    def __init__(self, wrapper: Spawner, class_of: Callable[[str], type[Spawner] | None]) -> None:
        """``class_of`` returns the class for a kind, or None if the profile names the class."""
        self._wrapper = wrapper
        self._class_of = class_of
        self._inheritance = Inheritance(wrapper)

    def build(self, kind: str, class_name: str | None, traits: Mapping[str, Any], *, where: str) -> Spawner:
        """Return a child of this kind with ``traits`` set; raises ConfigError, which names ``where``."""
        child_class = self._class_of(kind) or other_class(class_name or "", where=where)
        return new_child(self._wrapper, child_class, traits, where=where)

    def for_request(self, request: JobRequest) -> Child:
        """Return the child that will start ``request``; wrapper and child agree on times. Raises ConfigError."""
        where = f"profile {request.profile}"
        child = self.build(request.kind, request.spawner_class, request.traits, where=where)
        if isinstance(child, (GPUSlurmSpawner, GPULocalSpawner)):
            child.request = request
        elif request.command:
            child.cmd = list(request.command)
        own_settings = set(request.traits)
        if request.default_url:
            child.default_url = request.default_url
            own_settings.add("default_url")
        self._inheritance.take_times(child, {name: getattr(request, name) for name in TIMES})
        return Child(
            child,
            request.profile,
            request.kind,
            request.spawner_class or "",
            frozenset(own_settings),
            request.display_name,
            request.app.title if request.app is not None else "",
            connection_settings(request.kind, request.traits),
        )

    def for_trial(self, request: JobRequest) -> GPUSlurmSpawner:
        """Return a child for a Slurm job that is only tried; the wrapper stays as it is. Raises ConfigError."""
        child = self._slurm(request.traits, where=f"profile {request.profile}")
        child.request = request
        self._inheritance.hand_down(child, but=request.traits)
        return child

    def for_site(self, traits: Mapping[str, Any] | None = None) -> GPUSlurmSpawner:
        """Return a child with the settings of all Slurm servers, and these, but no profile; raises ConfigError.

        Group overrides count.
        """
        child = self._slurm(traits or {}, where="c.GPUSlurmSpawner")
        self._inheritance.hand_down_overrides(child, but=traits or ())
        return child

    def _slurm(self, traits: Mapping[str, Any], *, where: str) -> GPUSlurmSpawner:
        child = self.build("slurm", None, traits, where=where)
        assert isinstance(child, GPUSlurmSpawner)  # noqa: S101 - for mypy: the trait allows nothing else
        return child

    def restored(self, state: Mapping[str, Any], profile: Profile | None = None) -> Child | None:
        """Return the child of a stored server, None if nothing is stored; raises ConfigError.

        Reads what :meth:`Child.get_state` or wrapspawner wrote. ``profile`` is the server's as it is today; what finds
        the server is as it was stored.
        """
        child_state = state.get("child")
        kind, class_name = str(state.get("kind", "")), str(state.get("class", ""))
        if child_state is None and "child_state" in state:  # written by wrapspawner
            child_state = state["child_state"]
            kind = "slurm" if "job_id" in child_state else "local"
        if not isinstance(child_state, dict) or not kind:
            return None
        connection = state.get("connection")
        connection = connection if isinstance(connection, dict) else None
        today = dict(profile.traits) if profile is not None else {}
        if connection is not None and kind == "slurm":
            today = {name: value for name, value in today.items() if name not in CONNECTION}
        child = self._restored(kind, class_name, today, connection or {})
        child.load_state(child_state)
        self._inheritance.take_times(child, {name: getattr(profile, name, None) for name in TIMES})
        slug, display_name, app = (str(state.get(name, "")) for name in ("profile", "display_name", "app"))
        return Child(child, slug, kind, class_name, display_name=display_name, app=app, connection=connection)

    def _restored(self, kind: str, class_name: str, today: Mapping[str, Any], connection: Mapping[str, Any]) -> Spawner:
        """A child with the settings of its profile; a setting that is no longer valid does not lose the server."""
        for traits in ({**today, **connection}, connection):
            try:
                return self.build(kind, class_name, traits, where="stored state")
            except ConfigError as error:
                self._wrapper.log.warning("A running server of %s: %s", log_name(self._wrapper), error)
        return self.build(kind, class_name, {}, where="stored state")

    def hand_down(self, child: Child) -> Child:
        """Give the child what the hub, a hook or a group override has set on the wrapper for one start.

        Raises ConfigError for a value that is not valid. What then finds the server is part of its state.
        """
        self._inheritance.hand_down(child.spawner, but=child.own_settings)
        overrides = connection_settings(child.kind, self._inheritance.overrides(child.spawner))
        return replace(child, connection={**overrides, **(child.connection or {})})
