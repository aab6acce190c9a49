"""dupq finds the duplicate questions in whole question-and-answer archives."""

__version__ = "0.1.0"
