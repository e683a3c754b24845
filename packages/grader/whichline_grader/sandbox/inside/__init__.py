"""The untrusted side: what runs in the sandbox, in the same process as a submission.

Nothing here knows an expected value, and nothing here imports the trusted side.
"""
