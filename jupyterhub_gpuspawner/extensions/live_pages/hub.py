"""What live pages add to a hub."""

from jupyterhub_gpuspawner.extensions.live_pages import home
from jupyterhub_gpuspawner.hub.extension import HubExtension

HUB = HubExtension(
    pages=((f"/{home.PATH}", home.HomeEvents),),
    page_tools={"home_stream": home},
)
