"""The linear layer."""
