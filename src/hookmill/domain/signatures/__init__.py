"""Provider signatures: a catalogue of schemes as data, a verifier, a signer, and a diagnosis for the owner."""
