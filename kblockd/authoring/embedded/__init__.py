"""What regorus tells of a run: ``processes`` in the parent, and a worker of their own in the child."""
