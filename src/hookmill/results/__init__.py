"""Delivers the results of runs to the operator's destinations: comments, commit statuses, chats and signed webhooks.

`destinations` has their settings, `delivery` sends one message, and `sender` has the threads that send those that wait.
"""
