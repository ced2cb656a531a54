"""The limit of reused samples."""
