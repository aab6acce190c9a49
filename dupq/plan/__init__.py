"""What a job would take on machines that need not be there: from measured rates, by arithmetic alone."""
