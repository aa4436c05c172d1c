"""Workspaces: checkouts of Git repositories for runs. The operator allows repositories, and automations name one."""
