"""From HTML to tokens, ids and keys."""
