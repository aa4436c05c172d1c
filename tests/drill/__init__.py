"""The drill: a real installation under load, random faults from a seed, then an audit of every delivery and run.

`python -m tests.drill` runs it. `docs/reliability.md` describes what it measures.
"""
