"""Provider signatures: a catalogue of schemes as data, one verifier, one signer, and the owner's diagnosis."""
