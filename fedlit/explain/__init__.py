"""What a federation had to bend to make each client's table fit, shown to a person."""
