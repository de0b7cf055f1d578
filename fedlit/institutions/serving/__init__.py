"""How a coordinator serves sites: its requests, its states, and the rounds that it closes."""
