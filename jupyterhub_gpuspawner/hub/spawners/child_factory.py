"""Child spawners: built for a request, for a trial or from stored state, and given the wrapper's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.hub.spawners.child import TIMES, Inheritance, new_child, other_class
from jupyterhub_gpuspawner.hub.spawners.local import GPULocalSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyterhub_gpuspawner.hub.spawner_bases import Spawner
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest

STATE_VERSION = 1


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

    def get_state(self) -> dict[str, Any]:
        """Return what a later hub needs to restore the child; never configuration."""
        state = {
            "version": STATE_VERSION,
            "profile": self.profile,
            "kind": self.kind,
            "child": self.spawner.get_state(),
        }
        more = {"class": self.class_name, "display_name": self.display_name, "app": self.app}
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
        )

    def for_trial(self, request: JobRequest) -> GPUSlurmSpawner:
        """Return a child for a Slurm job that is only tried; the wrapper stays as it is. Raises ConfigError."""
        child = self._slurm(request.traits, where=f"profile {request.profile}")
        child.request = request
        self._inheritance.hand_down(child, but=request.traits)
        return child

    def for_site(self) -> GPUSlurmSpawner:
        """Return a child with the settings of all Slurm servers and no profile; raises ConfigError.

        A group override of ``req_*`` counts.
        """
        child = self._slurm({}, where="c.GPUSlurmSpawner")
        self._inheritance.hand_down_requests(child)
        return child

    def _slurm(self, traits: Mapping[str, Any], *, where: str) -> GPUSlurmSpawner:
        child = self.build("slurm", None, traits, where=where)
        assert isinstance(child, GPUSlurmSpawner)  # noqa: S101 - for mypy: the trait allows nothing else
        return child

    def restored(self, state: Mapping[str, Any]) -> Child | None:
        """Return the child of a stored server, None if nothing is stored; raises ConfigError.

        Reads what :meth:`Child.get_state` or wrapspawner wrote. Today's profiles play no part in it.
        """
        child_state = state.get("child")
        kind, class_name = str(state.get("kind", "")), str(state.get("class", ""))
        if child_state is None and "child_state" in state:  # written by wrapspawner
            child_state = state["child_state"]
            kind = "slurm" if "job_id" in child_state else "local"
        if not isinstance(child_state, dict) or not kind:
            return None
        child = self.build(kind, class_name, {}, where="stored state")
        child.load_state(child_state)
        self._inheritance.take_times(child, {})
        profile, display_name, app = (str(state.get(name, "")) for name in ("profile", "display_name", "app"))
        return Child(child, profile, kind, class_name, display_name=display_name, app=app)

    def hand_down(self, child: Child) -> None:
        """Give the child what the hub, a hook or a group override has set on the wrapper for one start."""
        self._inheritance.hand_down(child.spawner, but=child.own_settings)
