"""What the page of free GPUs adds to a hub."""

from jupyterhub_gpuspawner.extensions.vacancies.page import FreeGPUs, FreeGPUsHandler, FreeGPUsPage
from jupyterhub_gpuspawner.hub.extension import HubExtension

HUB = HubExtension(
    settings=(FreeGPUs,),
    api=((r"/api/gpuspawner/free-gpus", FreeGPUsHandler),),
    pages=((r"/gpuspawner/free-gpus", FreeGPUsPage),),
)
