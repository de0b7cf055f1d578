"""Whether a client gains from federation: the verdict on a lift, and each client's answer."""
