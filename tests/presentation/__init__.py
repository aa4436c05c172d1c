"""JSON views of resources, which the API and the command line share."""
