"""Resources as JSON, for the HTTP API and for `--json` of the command line.

Each resource has a module, with a view for each of its representations. `view.py` defines views. The OpenAPI document
is generated from the views, so each field is described once. The API and the command line add fields of their own.
"""
