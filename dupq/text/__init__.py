"""Text processing: HTML to tokens, normalisation, vocabularies, term sets, and packed question keys."""
