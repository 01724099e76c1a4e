"""What the form reads of the spawner for which it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.courses.course_profile import CourseProfile
    from jupyterhub_gpuspawner.errors import ConfigError
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest


class OfferSource(Protocol):
    """The profiles of one user's server; :class:`GPUProfilesSpawner` is one."""

    @property
    def log(self) -> Any:
        """A logger."""

    @property
    def user(self) -> Any:
        """JupyterHub's user."""

    @property
    def hub(self) -> Any:
        """JupyterHub's hub, for the address of its pages; None outside of one."""

    @property
    def handler(self) -> Any:
        """The request for which the form is made; None where there is none."""

    @property
    def user_options(self) -> Mapping[str, object]:
        """The last choice."""

    async def look_at_profiles(self) -> None:
        """Read the folder of profiles again."""

    def offered(self) -> tuple[Profile, ...]:
        """All profiles, in order; raises ConfigError."""

    def course_profiles(self) -> tuple[CourseProfile, ...]:
        """The courses among them; raises ConfigError."""

    def profile_errors(self) -> tuple[ConfigError, ...]:
        """Faults in files of profiles and courses."""

    def groups_of_user(self) -> frozenset[str]:
        """The names of the user's JupyterHub groups."""

    def resolve(self, user_options: Mapping[str, object]) -> JobRequest:
        """Check a choice; raises RequestError or ConfigError."""

    def slurm_site(self) -> Any:
        """A spawner with the settings of all Slurm servers; raises ConfigError."""
