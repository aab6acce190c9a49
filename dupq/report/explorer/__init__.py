"""What the report's cluster explorer shows of a run: gathered here, drawn by the scripts in dupq/report/static."""
