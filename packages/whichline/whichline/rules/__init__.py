"""Say what students must write themselves. Imports nothing else of ours: the grader runs it beside submissions, too."""
