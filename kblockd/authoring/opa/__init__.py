"""What OPA tells of a run, by its coverage report."""
