"""The tables as pages: ours beside the papers', with intervals, claims and charts."""
