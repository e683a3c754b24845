"""What students write."""
