"""S3, as it is: requests are throttled, answers get lost, connections break, for minutes at a time."""
