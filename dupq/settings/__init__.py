"""Every setting of dupq: a frozen model a section, and the presets that ship with it."""
