"""The drill: a real installation under steady deliveries, faults at random from a seed, and an audit of every delivery
and run at the end. `python -m tests.drill` runs it; `docs/reliability.md` says what it measures."""
