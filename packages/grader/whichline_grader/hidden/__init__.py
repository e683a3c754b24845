"""The hidden suite, which grades submissions besides the public one. Students never see it."""
