"""What the hub's pages say: every sentence of a page, one module for each page.

Sentences about a job, a reason or an error are the core's, where the facts are (:mod:`jupyterhub_gpuspawner.jobs`,
:mod:`jupyterhub_gpuspawner.errors`).
"""
