"""A form in batchspawner's section, whose values are the template's."""

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.req_partition = "cpu"
c.SlurmSpawner.options_form = '<select name="partition"><option>cpu</option></select>'
c.SlurmSpawner.options_from_form = lambda form: {k: v[0] for k, v in form.items()}
