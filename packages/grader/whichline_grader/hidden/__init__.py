"""The hidden suite: what a submission is graded on besides the public one. Students never see it."""
