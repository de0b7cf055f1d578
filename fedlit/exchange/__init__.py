"""What leaves a client, when, by which rule it comes together, and what comes back."""
