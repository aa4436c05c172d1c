"""Prints how far the contract is covered: `python -m tests.spec`."""

from tests.spec import shown_by_every_module
from tests.spec.sentences import NOT_YET_COVERED, SENTENCES

shown = shown_by_every_module()
print(f"{len(shown)} of {len(SENTENCES)} sentences are shown by a test. Not yet:")
for sentence in SENTENCES:
    if sentence not in shown:
        print(f"- {sentence}\n  ({NOT_YET_COVERED.get(sentence, 'without a reason')})")
