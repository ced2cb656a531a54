"""What leaves the process: task files, papers, the environment."""
