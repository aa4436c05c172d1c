"""HTTP: the ingress, the API and the dashboard."""
