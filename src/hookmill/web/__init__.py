"""The HTTP endpoints: the ingress, the API and the dashboard."""
