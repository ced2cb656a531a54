"""What one step does, written once."""
