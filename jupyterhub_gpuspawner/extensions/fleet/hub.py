"""What the hub keeps and shows of its nodes."""

from jupyterhub_gpuspawner.extensions.fleet.page import FleetHandler, below_map
from jupyterhub_gpuspawner.extensions.fleet.store import GRANTS, NODES, STEPS
from jupyterhub_gpuspawner.extensions.fleet.upkeep import begin_fleet
from jupyterhub_gpuspawner.hub.extension import HubExtension

HUB = HubExtension(
    tables=(NODES, GRANTS),
    steps=STEPS,
    begin=(begin_fleet,),
    api=((r"/api/gpuspawner/fleet", FleetHandler),),
    below_map=below_map,
)
