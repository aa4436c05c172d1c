"""How each thing is shown as JSON: by the HTTP API, and by `--json` of the command line.

One module for each resource, and in it a view for each form that the resource is shown in. `view.py` says what a view
is. The API's description is made of the views, so a field is written down once. What only one of the two shows, it
adds itself.
"""
