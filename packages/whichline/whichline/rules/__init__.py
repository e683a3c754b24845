"""The rules on what students must write themselves. Workers have a copy, so it imports nothing else of ours."""
