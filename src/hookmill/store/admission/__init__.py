"""Admission: how deliveries reach the database. Start with `plan`, then `transaction`.

The ingress evaluates a delivery against a `snapshot` of the webhooks, which results in a `plan`. `group_commit` sends
the plan to the writer process (`writer`) in messages (`protocol`). One `transaction` admits all waiting plans.
"""
