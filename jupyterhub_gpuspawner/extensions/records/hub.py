"""What records add to a hub: their settings, their work, and how long waits really are."""

from jupyterhub_gpuspawner.hub.extensions import HubExtension
from jupyterhub_gpuspawner.hub.records.keeper import GPUSessions, begin_sessions, estimate

HUB = HubExtension(settings=(GPUSessions,), begin=(begin_sessions,), estimate=estimate)
