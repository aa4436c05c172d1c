"""How things are shown as JSON, by the API and by the command line alike."""
