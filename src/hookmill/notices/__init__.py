"""Sends notices of alarms to their destinations: e-mail, chats that are compatible with Slack, and signed webhooks.

`outgoing` sends one message. `sender` is the thread that sends those that wait in the store.
"""
