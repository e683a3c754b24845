"""What ships beside the assignment: the pytest plugin, the diagnosis and the `cs336` command."""
