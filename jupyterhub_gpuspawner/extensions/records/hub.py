"""What records add to a hub: their settings, their work, how long waits really are, and nodes on which starts fail."""

from jupyterhub_gpuspawner.extensions.records.keeper import GPUSessions, begin_sessions, estimate
from jupyterhub_gpuspawner.extensions.records.marks import marks_of
from jupyterhub_gpuspawner.extensions.records.promised import ServerPromises
from jupyterhub_gpuspawner.hub.extension import HubExtension

HUB = HubExtension(
    settings=(GPUSessions,),
    begin=(begin_sessions,),
    estimate=estimate,
    marks_of=marks_of,
    with_server=ServerPromises,
)
