"""The controlled event loop, virtual sources, and the harness around the stock loop."""
