"""`dupq serve`: a run in a browser, and a service that looks new questions up."""
