"""The steps that search for neighbours."""
