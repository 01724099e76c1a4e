"""What the page of a server that does not answer adds to a hub."""

from jupyterhub_gpuspawner.extensions.no_answer.page import NoAnswerPage, ProxyErrorPage
from jupyterhub_gpuspawner.hub.extension import HubExtension

HUB = HubExtension(
    pages=(
        (r"/error/(\d+)", ProxyErrorPage),  # an extension's routes come before JupyterHub's
        (r"/gpuspawner/no-answer", NoAnswerPage),
    )
)
