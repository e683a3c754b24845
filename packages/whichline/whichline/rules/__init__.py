"""The rules on what students must write themselves. Workers have a copy, so nothing else of ours is imported here."""
