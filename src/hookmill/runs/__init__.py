"""From a run's row to its end: handing over, performing, and what is done when a worker dies in the middle."""
