"""Admission: how deliveries reach the database. Start with `plan`, then `transaction`.

The ingress makes a plan from a snapshot of the webhooks (`snapshot`), and hands it to group commit (`group_commit`),
which sends it to the writing process (`writer`, in the words of `protocol`). One transaction admits all plans that are
waiting (`transaction`).
"""
