"""The fixtures of dupq's own tests."""

pytest_plugins = ["tests.conftest"]
