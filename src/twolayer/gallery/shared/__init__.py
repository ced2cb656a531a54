"""What the figures of the gallery share."""
